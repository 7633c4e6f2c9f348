"""A study of a GGUF file from the command line to the page, with its twin and its effects."""

from pathlib import Path

import pytest

import storage
from tests.dagster_project.driver import attention_geometry
from tests.dagster_project.recorded import write_studies
from tests.extract.gguf_files import write_gguf

EFFECTS = {"sequences": 2, "held_out": 1, "draws": 1, "budgets": [0.5]}


@pytest.mark.slow
def test_tables_and_pages_name_model_weights_and_text_by_what_they_are(tmp_path: Path) -> None:
    model = str(write_gguf(tmp_path / "tiny.gguf", kind="Q4_1", add_bos=True))
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
