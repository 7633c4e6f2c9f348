"""A model whose weights are set by hand, so that it is known what its heads look at, is labelled right."""

from collections.abc import Iterator
from contextlib import closing

import duckdb
import pyarrow as pa
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import sql
from dagster_project.analysis.patterns import compute_head_patterns
from dagster_project.analysis.sources import Sources
from dagster_project.study.settings import Study
from extract.extraction import extract
from extract.hub import silence_libraries
from storage.files.places import LocalPlace
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.extract.tiny import VOCABULARY, text, tiny_tokenizer

D, HEADS = 64, 3
"""Length of a part of the hidden state, as of a head; parts are the token, its position, and the token before."""
TOKEN, PLACE, BEFORE = (slice(start, start + D) for start in range(0, HEADS * D, D))
CONTEXT, SHARP = 48, 3.0

KNOWN = {
    "previous": {(0, 0)},
    "self": {(0, 2)},
    "local": {(0, 0), (0, 2)},
    "induction": {(1, 0)},
    "sink": {(1, 1)},
    "diffuse": {(0, 1), (1, 2)},
}
"""The heads of each label; those that look at themselves or the token before look at the last eight, too."""


def set_by_hand() -> GPT2LMHeadModel:
    """Two layers of attention alone: head 0.0 copies the token before, which head 1.0, an induction head, looks for."""
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=HEADS * D, n_layer=2, n_head=HEADS, n_positions=D)
    model = GPT2LMHeadModel(config).eval()
    generator, half = torch.Generator().manual_seed(0), torch.ones(D // 2)
    signs = torch.cat([half, -half])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".ln_" not in name:
                parameter.zero_()
        for token in model.transformer.wte.weight:
            token[TOKEN] = signs[torch.randperm(D, generator=generator)]
        model.transformer.wpe.weight[:, PLACE] = 8 * (torch.eye(D) - 1 / D)
        _connect(model, 0, 0, PLACE, PLACE, shift=1)
        model.transformer.h[0].attn.c_proj.weight[:D, BEFORE] = torch.eye(D)
        _connect(model, 0, 2, PLACE, PLACE)
        _connect(model, 1, 0, TOKEN, BEFORE)
        resting = model.transformer.h[1].attn.c_attn
        resting.weight[PLACE.start, HEADS * D + D] = 1  # keys of head 1: high at position 0
        resting.bias[D] = SHARP * D / 8
    return model


def _connect(model: GPT2LMHeadModel, layer: int, head: int, queries: slice, keys: slice, shift: int = 0) -> None:
    """Let a head look for keys one of whose parts equals one of the query's, that of positions moved by ``shift``."""
    into = model.transformer.h[layer].attn.c_attn.weight
    for kind, part in enumerate((queries, keys, TOKEN)):
        matched = torch.eye(D).roll(shift, dims=1) if kind == 1 else torch.eye(D)
        start = kind * HEADS * D + head * D
        into[part, start : start + D] = matched * (SHARP if kind == 0 else 1)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """The patterns of a study of that model, with its probe, and the macro of labels."""
    folder = tmp_path_factory.mktemp("known")
    with silence_libraries():
        set_by_hand().save_pretrained(folder / "model")
        tiny_tokenizer().save_pretrained(folder / "model")
    (folder / "book.txt").write_text(text(2000), encoding="utf-8")
    given = {"model": str(folder / "model"), "corpus": str(folder / "book.txt"), "probe": "repeated"}
    study = Study.model_validate(given | {"context_length": CONTEXT, "sequences": 8, "batch_size": 8})
    extract(study.select_extraction(), study="known", path=LocalPlace(folder / "store"))
    store = SequenceStore.open(LocalPlace(folder / "store"), TENSORS)
    with closing(duckdb.connect()) as connection:
        for name, batch in compute_head_patterns(Sources("known", store, store, folder, study)):
            connection.execute(sql.read_statement("schema", name).text)
            rows = pa.Table.from_batches([batch]).append_column("study", pa.array(["known"] * batch.num_rows))
            connection.register("incoming", rows)
            connection.execute(f"INSERT INTO {name} BY NAME FROM incoming")
        connection.execute(sql.read_statement("macros", "label_patterns").text)
        yield connection


def test_heads_are_labelled_by_what_they_were_made_to_look_at(labelled: duckdb.DuckDBPyConnection) -> None:
    found: dict[str, set[tuple[int, int]]] = {}
    for label, layer, head in labelled.execute("SELECT label, layer, head FROM label_patterns()").fetchall():
        found.setdefault(label, set()).add((layer, head))
    assert found == KNOWN


def test_no_head_copies_without_a_probe(labelled: duckdb.DuckDBPyConnection) -> None:
    """Not even if it does in the text, in which most heads that copy find nothing to copy."""
    labelled.execute("BEGIN")
    labelled.execute("DELETE FROM head_pattern_means WHERE text = 'corpus' AND pattern = 'induction'")
    labelled.execute("UPDATE head_pattern_means SET text = 'corpus' WHERE pattern = 'induction'")
    labels = {label for (label,) in labelled.execute("SELECT label FROM label_patterns()").fetchall()}
    labelled.execute("ROLLBACK")
    assert labels == KNOWN.keys() - {"induction"}
