"""What heads look at and the weight that keys receive: the definitions on eager's matrices, and the memory."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from extract import attention, two_pass
from extract.buffers import Buffers
from extract.capture import Capture, capture, probe
from geometry.quantities import PATTERNS
from tests.extract.families import (
    FAMILIES,
    KEYS,
    QUERIES,
    Family,
    attention_of,
    every_kind,
    ids,
    model_of,
    plain_of,
)
from tests.extract.memory import Held
from tests.extract.tiny import tiny_model
from tests.geometry.patterns_oracle import measure_all

pytestmark = pytest.mark.usefixtures("noiseless")

TOLERANCE = 5e-6
OF_PATTERNS = 1e-5


def read(family: Family) -> Capture:
    known = attention_of(family.name)
    buffers = Buffers(known.layers, batch=2, queries=3, keys=KEYS, dtype=known.dtype, received=True)
    return capture(model_of(family.name), known, ids(), QUERIES, buffers)


def importance(weights: Tensor) -> Tensor:
    """The scores of Attention-Sink's ``eval_sink_open_source.py``: weights (B, H, T, T) over T - k, summed by query."""
    count = weights.shape[-1]
    return (weights.double() / torch.arange(count, 0, -1)).sum(dim=-2)


def farthest(family: Family, definition: Callable[[Tensor], Tensor]) -> float:
    """Largest difference from what a definition makes of eager's matrices."""
    found, largest = read(family), 0.0
    assert found.received is not None
    for layer, weights in plain_of(family.name).weights.items():
        ours = found.received[layer, :, : weights.shape[1]]
        assert found.received[layer, :, weights.shape[1] :].isnan().all()
        largest = max(largest, float((ours - definition(weights)).abs().max()))
    return largest


OTHER_DEFINITIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "over all queries": lambda weights: weights.mean(dim=-2),
    "without its own": lambda weights: (
        (weights - weights.diagonal(dim1=-2, dim2=-1).diag_embed()).sum(-2) / torch.arange(KEYS, 0, -1)
    ),
    "last query": lambda weights: weights[:, :, -1],
    "by query": lambda weights: weights.sum(dim=-1),
}


@pytest.mark.parametrize("other", OTHER_DEFINITIONS)
def test_other_definitions_are_told_apart(other: str) -> None:
    family = next(family for family in FAMILIES if family.name == "Mistral")
    assert farthest(family, OTHER_DEFINITIONS[other]) > 1000 * TOLERANCE


def test_memory_is_that_of_a_block_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1024 keys a head's matrix has 2^20 numbers, a layer's 2^22; a block is told to have 2^18."""
    keys = 1024
    monkeypatch.setattr(attention, "BLOCK_BYTES", 2**20)
    monkeypatch.setattr(attention, "PATTERN_BYTES", {})
    model = tiny_model("llama", max_position_embeddings=keys)
    known = probe(model, ids(1))
    buffers = Buffers(known.layers, batch=1, queries=1, keys=keys, dtype=known.dtype, received=True)
    with Held() as held:
        capture(model, known, ids(1, keys), (keys - 1,), buffers)
    assert held.largest <= 2**20
    monkeypatch.setattr(attention, "BLOCK_BYTES", 1)  # one query at a time, however little room there is
    with Held() as held:
        capture(model, known, ids(1, 64), (63,), Buffers(known.layers, **ROOM, dtype=known.dtype))
    assert 0 < held.largest <= 64 * 64 * 2 * 4


ROOM = {"batch": 1, "queries": 1, "keys": 64, "received": True}


@pytest.mark.one_case
@every_kind
def test_both_are_what_the_definitions_make_of_eager_s_matrices(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block of queries has 7 rows of 4 heads and chance."""
    layers = len(attention_of(family.name).layers)
    monkeypatch.setattr(attention, "BLOCK_BYTES", 7 * 2 * 4 * KEYS * 4)
    monkeypatch.setattr(attention, "PATTERN_BYTES", {"cpu": 7 * (4 + 1) * KEYS * 4})
    monkeypatch.setattr(two_pass, "BLOCK_BYTES", layers * 7 * 2 * 4 * KEYS * 4)
    assert farthest(family, importance) < TOLERANCE
    found = read(family)
    for layer, weights in plain_of(family.name).weights.items():
        heads = weights.shape[1]
        sees = (weights[..., 0] > 0).any(dim=1).any(dim=0).tolist()
        exact = measure_all(weights, ids(), sees)
        np.testing.assert_allclose(found.patterns[layer, :, :heads], exact, atol=OF_PATTERNS)
        assert (found.pattern_queries[layer, :, PATTERNS.index("sink")] == sum(sees[1:])).all()
        assert found.patterns[layer, :, heads:].isnan().all()
        visible = (weights > 0).any(dim=1, keepdim=True).double()
        uniform = visible / visible.sum(dim=-1, keepdim=True)
        np.testing.assert_allclose(found.chance[layer], measure_all(uniform, ids(), sees)[:, 0], atol=OF_PATTERNS)


def test_patterns_that_were_measured_before_do_not_stay() -> None:
    """The memory of a batch is used again, also by one that has no patterns."""
    layers = attention_of("Llama 2, Llama 3").layers
    buffers = Buffers(layers, batch=1, queries=1, keys=4, dtype=torch.float32)
    given = torch.zeros(1, 1, 4, 4), torch.zeros(1, 2, 4, 16)
    buffers.put(0, *given, patterns=(torch.ones(1, 4, len(PATTERNS)), *torch.ones(2, 1, len(PATTERNS))))
    assert (buffers.tensors["patterns"][0] == 1).all()
    buffers.put(0, *given)
    assert buffers.tensors["patterns"][0].isnan().all()
    assert buffers.tensors["chance"][0].isnan().all()
