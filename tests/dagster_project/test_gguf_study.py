"""A study of a GGUF file from the command line to the page, with its twin and its effects."""

import re
from pathlib import Path
from typing import Any

import pytest

import storage
from tests.dagster_project.driver import attention_geometry
from tests.dagster_project.recorded import write_studies
from tests.extract.gguf_files import write_gguf

EFFECTS = {"sequences": 2, "held_out": 1, "draws": 1, "budgets": [0.5]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with a study of a file on prose, with a twin and effects."""
    home = tmp_path_factory.mktemp("gguf")
    model = str(write_gguf(home / "tiny.gguf", kind="Q4_1", add_bos=True))
    study = {"model": model, "corpus": "prose", "context_length": 40, "sequences": 3}
    write_studies(home, prose=study | {"twin": "random", "analysis": {"effects": EFFECTS}})
    done = attention_geometry("run", "prose", home=home)
    assert done.code == 0, done.errors
    return home


def ask(home: Path, query: str) -> list[dict[str, Any]]:
    with storage.connect(home) as connection:
        return connection.sql(query).to_arrow_table().to_pylist()


@pytest.mark.slow
def test_the_tables_name_model_weights_and_text_by_what_they_are(home: Path) -> None:
    rows = {row["study"]: row for row in ask(home, "FROM studies SELECT * EXCLUDE provenance")}
    told = ("model", "model_name", "architecture", "weights", "corpus", "corpus_name")
    file, name, kind = str(home / "tiny.gguf"), "Tiny <b>model</b>", "LlamaForCausalLM"
    stored = "Q4_1, dequantised to float32"
    assert [rows["prose"][key] for key in told] == [file, name, kind, stored, "prose", "English prose"]
    assert [rows["prose-random"][key] for key in told] == [file, name, kind, "random", "prose", "English prose"]
    assert rows["prose"]["twin"] == "prose-random"
    assert rows["prose"]["revision"] != ""


@pytest.mark.slow
def test_the_page_is_titled_by_the_file_and_shows_the_name_in_it_as_text(home: Path) -> None:
    page = (home / "reports" / "prose.html").read_text(encoding="utf-8")
    assert re.search(r"<h1[^>]*>\s*tiny\s*</h1>", page)
    assert "<p>tiny reads English prose</p>" in (home / "index.html").read_text(encoding="utf-8")
    assert "The model (Q4_1, dequantised to float32) reads <strong>English prose</strong>" in page
    assert "Tiny &lt;b&gt;model&lt;/b&gt;" in page
    assert "Tiny <b>model" not in page
    assert "English prose" in attention_geometry("studies", home=home).text
