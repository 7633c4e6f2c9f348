"""Studies of GGUF files from the command line to the page: one with its twin and its effects, and the shipped one."""

import math
from pathlib import Path

import pytest

import storage
from gallery.__main__ import FOLDER, load_tables, read_tables
from storage.warehouse.connection import connect
from tests.dagster_project.driver import attention_geometry
from tests.dagster_project.recorded import write_studies
from tests.extract.gguf_files import write_gguf
from tests.shipped import run_shipped

EFFECTS = {"sequences": 2, "held_out": 1, "draws": 1, "budgets": [0.5]}


@pytest.mark.slow
def test_tables_and_pages_name_model_weights_and_text_by_what_they_are(tmp_path: Path) -> None:
    begins = {"tokenizer.ggml.add_bos_token": True}
    model = str(write_gguf(tmp_path / "tiny.gguf", kind="Q4_1", metadata=begins))
    study = {"model": model, "corpus": "prose", "context_length": 40, "sequences": 3}
    write_studies(tmp_path, prose=study | {"twin": "random", "analysis": {"effects": EFFECTS}})
    done = attention_geometry("run", "prose", home=tmp_path)
    assert done.code == 0, done.errors
    told = "study, model, model_name, architecture, weights, corpus, corpus_name, twin"
    with storage.connect(tmp_path) as connection:
        found = connection.execute(f"SELECT {told} FROM studies ORDER BY study").fetchall()
    known = (model, "Tiny <b>model</b>", "LlamaForCausalLM")
    assert found == [
        ("prose", *known, "Q4_1, dequantised to float32", "prose", "English prose", "prose-random"),
        ("prose-random", *known, "random", "prose", "English prose", None),
    ]
    page = (tmp_path / "reports" / "prose.html").read_text(encoding="utf-8")
    assert "<p>tiny reads English prose</p>" in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "The model (Q4_1, dequantised to float32) reads <strong>English prose</strong>" in page
    assert "Tiny &lt;b&gt;model&lt;/b&gt;" in page
    assert "Tiny <b>model" not in page


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_gallery_says_what_its_study_finds_today(tmp_path_factory: pytest.TempPathFactory) -> None:
    stored = load_tables(FOLDER)
    name = stored["smollm2.study"][0]["study"]
    with connect(run_shipped(name, tmp_path_factory) / "warehouse") as connection:
        found = {table: rows.to_pylist() for table, rows in read_tables(connection, "smollm2", name).items()}
    assert [row["fact"] for row in found["smollm2.facts"]] == [row["fact"] for row in stored["smollm2.facts"]]
    for mine, today in zip(stored["smollm2.claims"], found["smollm2.claims"], strict=True):
        for column in ("claim", "statement", "verdict", "beyond_twin"):  # what does not depend on rounding
            assert today[column] == mine[column]
        before, after = (
            [math.nan if part["value"] is None else part["value"] for part in row["parts"]] for row in (mine, today)
        )
        assert after == pytest.approx(before, rel=0.02, abs=0.002, nan_ok=True)
    heads = [[(row["layer"], row["head"]) for row in of["induction_heads"]][:2] for of in (stored, found)]
    assert heads[0] == heads[1]
