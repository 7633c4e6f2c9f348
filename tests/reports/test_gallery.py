"""docs/gallery.md says what its stored tables say, and those are of the studies as they run today."""

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gallery.__main__ import FOLDER, PAGE, load_tables, main, render_page
from gallery.comparison import compare_measures, read_models
from storage.files.root import HOME_VARIABLE, warehouse_of

TABLES = load_tables(FOLDER)
TEXT = PAGE.read_text(encoding="utf-8")
MODELS = [model.part for model in read_models(TABLES)]


def test_the_page_is_what_its_tables_make_it() -> None:
    assert render_page(TABLES) == TEXT


@pytest.mark.parametrize(
    "name", ["induction_heads", "copied_tokens", "embedded.heads", "smollm2.keys", "embedded.last_query_beside_all"]
)
def test_another_number_makes_another_page(name: str) -> None:
    tables = copy.deepcopy(TABLES)
    column = next(column for column in ("share", "weight", "induction", "last") if column in tables[name][0])
    tables[name][0][column] = 0.123456
    assert render_page(tables).count("0.123") > TEXT.count("0.123")


def test_without_any_study_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    warehouse_of(tmp_path).mkdir()
    kept = sorted(FOLDER.iterdir())
    with pytest.raises(SystemExit, match=r"None of gallery-smollm2, .* is in .*; run one first"):
        main()
    assert sorted(FOLDER.iterdir()) == kept


def test_what_to_remember_follows_from_verdicts_and_measures() -> None:
    tables = copy.deepcopy(TABLES)
    for row in (row for part in MODELS for row in tables[f"{part}.claims"]):
        row |= {"verdict": "supported", "beyond_twin": False, "reason": None}
        for one in row["parts"]:
            one["verdict"] = "supported"
    for part in MODELS:
        next(row for row in tables[f"{part}.measures"] if row["measure"] == "sink_weight")["value"] = 0.987
    after = [line for line in render_page(tables).splitlines() if re.match(r"[1-5]\. ", line)][:5]
    claims = len(tables["gemma3.claims"])
    assert f"Of {claims} claims of the paper, {claims} hold in all {len(MODELS)} models, 0 in some" in after[0]
    assert "answered “yes” for SmolLM2" in after[1]
    assert "one length in all," in after[2]
    assert "98.7\u00a0% in Gemma 3" in after[3]


def test_no_path_of_a_machine_is_stored() -> None:
    assert not [name for part in MODELS for name in TABLES[f"{part}.study"] if name["model"].startswith("/")]


def test_two_models_differ_where_their_sequences_do() -> None:
    """The first measure of a copy is moved by more than its values spread: of its two pairs alone p is small."""
    one, *_ = read_models(TABLES)
    moved = next(row["measure"] for row in compare_measures([one, one]))
    values = {name: [value + 9 * (name == moved) for value in given] for name, given in one.values.items()}
    rows = compare_measures([one, one, replace(one, values=values)])
    small = {(row["measure"], place) for row in rows for place, p in enumerate(row["p"]) if p < 1}
    assert small == {(moved, 1), (moved, 2)}
