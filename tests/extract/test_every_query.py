"""Every query of a text, of all families: what is measured while a model reads, against its captured weights."""

import numpy as np
import pytest
import torch

from extract import attention, two_pass
from extract.buffers import Buffers
from extract.capture import Capture, capture
from geometry.quantities import TOP_KEYS, QueryMeasures, list_declared
from geometry.selection.every_query import Contexts, measure_queries
from tests.extract.families import FAMILIES, KEYS, Family, attention_of, every_family, ids, model_of
from tests.geometry.draws import draw_layer

pytestmark = pytest.mark.usefixtures("noiseless")

NAMES = list(list_declared(QueryMeasures))
LEVELS = [index for index, name in enumerate(NAMES) if name.endswith("_level") or name in {"n_90", "top_position"}]
"""What a tie of weights or distances decides."""


def read(family: Family) -> Capture:
    """Capture the weights of all queries, and what is measured of them."""
    known = attention_of(family.name)
    buffers = Buffers(known.layers, batch=2, queries=KEYS, keys=KEYS, dtype=known.dtype, every_query=True)
    return capture(model_of(family.name), known, ids(), tuple(range(KEYS)), buffers, every_query=True)


def compare(captured: Capture, *, shift: int = 0) -> tuple[float, float]:
    """Largest difference of what no tie decides, and the share of the rest that differs, over all layers and queries.

    shift: of the value states along the keys.
    """
    assert captured.query_measures is not None
    assert captured.context_means is not None
    largest, jumps = 0.0, []
    for layer, size in enumerate(captured.layers):
        found = captured.query_measures[layer, :, : size.heads].numpy()
        assert captured.query_measures[layer, :, size.heads :].isnan().all()
        assert captured.context_means[layer, :, size.heads :].isnan().all()
        for text in range(2 if size.heads else 0):
            weights = captured.weights[layer, text, 1:, : size.heads].transpose(0, 1).contiguous().numpy().copy()
            values = captured.values[layer, text, : size.kv_heads, :, : size.head_dim].float()
            values = values.roll(shift, dims=1).contiguous().numpy()
            first = captured.first_key[:, layer].numpy().astype(np.int64)
            assert captured.query_keys is not None
            assert_largest(captured.query_keys[layer, text, : size.heads].numpy(), weights, first)
            expected, *counts = measure_queries(weights, values, first[1:])
            contexts = Contexts.of(first)
            means = np.where(contexts.counts > 0, contexts.average(*counts, slice(1, KEYS)), np.nan)
            of_layer = captured.context_means[layer, text, : size.heads].transpose(0, 1).numpy()
            jumps.append((np.abs(np.nan_to_num(means - of_layer)) > 1e-4).mean())
            np.testing.assert_array_equal(np.isnan(means), np.isnan(of_layer))
            both = np.stack([getattr(expected, name) for name in NAMES], axis=-1), found[text, :, 1:]
            assert np.isnan(found[text, :, 0]).all()
            np.testing.assert_array_equal(*(np.isnan(one) for one in both))
            apart = np.nan_to_num(np.abs(both[0] - both[1]) / (1 + np.abs(both[0])))
            jumps.append((apart[..., LEVELS] > 1e-4).mean())
            largest = max(largest, float(np.delete(apart, LEVELS, axis=-1).max()))
    return largest, float(np.mean(jumps))


def assert_largest(found: np.ndarray, weights: np.ndarray, first: np.ndarray) -> None:
    """The keys of largest weight of the queries (head, query, 2, rank) are those of a sort (weights: from query 1)."""
    assert np.isnan(found[:, 0]).all()
    for head, query in np.ndindex(len(found), KEYS - 1):
        given, begin = weights[head, query], first[query + 1]
        seen = np.arange(begin, query + 2)
        position, weight = found[head, query + 1]
        count = min(TOP_KEYS, len(seen))
        assert np.isnan(position[count:]).all()
        assert np.isnan(weight[count:]).all()
        places = position[:count].astype(int)
        assert len(set(places)) == count
        assert set(places) <= set(seen)
        np.testing.assert_allclose(weight[:count], np.sort(given[seen])[::-1][:count], atol=1e-5)
        np.testing.assert_allclose(given[places], weight[:count], atol=1e-5)


@pytest.mark.one_case
@every_family
@pytest.mark.parametrize("rows", [7, pytest.param(KEYS, marks=pytest.mark.long)])
def test_measures_are_those_of_the_captured_weights(family: Family, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several blocks of queries, or in one."""
    monkeypatch.setattr(attention, "BLOCK_BYTES", bytes_ := 4 * 2 * 4 * KEYS * rows)
    monkeypatch.setattr(two_pass, "BLOCK_BYTES", bytes_ * len(attention_of(family.name).layers))
    largest, jumps = compare(read(family))
    assert largest < 1e-3
    assert jumps < 0.01


@pytest.mark.parametrize("name", ["Llama 2, Llama 3", "Mistral", "gpt-oss", "Gemma 2", "GPT-J"])
def test_value_states_of_other_keys_would_be_noticed(name: str) -> None:
    family = next(family for family in FAMILIES if family.name == name)
    largest, jumps = compare(read(family), shift=1)
    assert largest > 0.1
    assert jumps > 0.1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("kind", ["random", "repeated", "underflowed"])
def test_on_a_gpu_all_is_the_same(kind: str) -> None:
    """To the last digit: the counts are exact, and the rest is computed on the CPU."""
    weights, values, first = draw_layer(kind, n=300, window=200, kv_heads=2)
    rows, captured = torch.arange(1, 300), []
    for device in ("cpu", "cuda"):
        of = attention.EveryQuery.begin(1, len(weights), np.concatenate([[0], first]))
        value = torch.from_numpy(values.copy())[None].to(device)
        of.add(value, 0, torch.from_numpy(weights.copy()).to(device), rows.to(device))
        captured.append(of.tensors)
    for here, there in zip(*captured, strict=True):
        np.testing.assert_array_equal(here.numpy(), there.numpy())
