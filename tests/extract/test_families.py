"""Every family of models: captured against eager, layer by layer, with deliberate mistakes, and the page of that."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AttentionMaskInterface, DynamicCache, PreTrainedModel
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention

from extract.capture import attention as blockwise
from extract.capture import one_pass as module
from extract.capture import two_pass
from extract.capture.attention import Weighting, compute_query_weights
from extract.capture.batches import check_row, read_alone
from extract.capture.buffers import Buffers
from extract.capture.one_pass import Capture, capture, probe
from extract.effects import sparsity
from extract.effects.rows import LargestWeights, RowSums, read_rows
from extract.models.architectures import OTHER_KINDS
from geometry.quantities import PATTERNS, TOP_KEYS, QueryMeasures, list_declared
from geometry.selection.every_query import Contexts, measure_queries
from storage.errors import UserError
from tests.extract.families import (
    KEYS,
    PAGE,
    QUERIES,
    REFUSED,
    Family,
    Refused,
    attention_of,
    bound,
    every_family,
    every_kind,
    find_family,
    ids,
    made,
    measure,
    model_of,
    plain_of,
    write_tables,
)
from tests.geometry.patterns_oracle import measure_all

pytestmark = pytest.mark.usefixtures("noiseless")

MISTAKE = 200
"""A deliberate mistake is at least so many times the bound of rounding."""

LATE = QUERIES[1:]
"""The queries from which a window hides keys."""

VALUES = ("value_order", "value_keys")
"""Mistakes in what is kept of the value states."""

SHOWS_AT = {"causal": QUERIES[:-1], "mask": LATE, "window": LATE, **dict.fromkeys(VALUES, ())}
"""The queries at which a mistake shows in the weights, if not at all."""


@every_family
def test_every_query_of_every_layer_is_eager_s(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a model that is not saturated, else this would say little; alone, with others and in a text cut after it."""
    model, attention = model_of(family.name), attention_of(family.name)
    with monkeypatch.context() as patched:
        patched.setattr(blockwise, "QUERY_BLOCK", 7)  # several blocks, the last one shorter
        measured = measure(family)
    assert max(*measured.weights.values(), *measured.values, measured.sinks) < bound(family)
    assert measured.first_keys
    assert [size.heads == 0 for size in attention.layers] == [kind in OTHER_KINDS for kind in attention.kinds]
    assert attention.path == ("two-pass" if family.alone else "AttentionInterface")
    together, one_text = capture(model, attention, ids(), QUERIES), capture(model, attention, ids(1), QUERIES)
    same = partial(torch.testing.assert_close, rtol=0, atol=0, equal_nan=True)
    for q, query in enumerate(QUERIES):
        alone = capture(model, attention, ids(), (query,))
        same(together.weights[:, :, q], alone.weights[:, :, 0])
        same(together.learned_sink[:, :, q], alone.learned_sink[:, :, 0])
        same(together.values, alone.values)
        assert torch.equal(together.first_key[q], alone.first_key[0])
        largest = together.weights[:, :, q].amax(-1)
        largest = largest[largest.isfinite()]
        assert largest.median() < 0.5
        assert (largest < 0.9).float().mean() > 0.9
        cut, whole = read_alone(model, attention, ids(1)[0].numpy(), query), one_text.weights[:, 0, q]
        np.testing.assert_allclose(cut, whole[..., : query + 1], atol=2e-5)
        check_row(family.name, cut, whole, KEYS, torch.float32)


Weigh = Callable[..., tuple[Tensor, Tensor | None]]


def wrong_gqa_order(correct: Weigh, query: Tensor, key: Tensor, rows: Tensor, how: Weighting) -> object:
    """Query head h reads KV head h % Hkv."""
    order = torch.arange(query.shape[1]).reshape(-1, key.shape[1]).T.flatten()
    s_aux = None if how.s_aux is None else how.s_aux[order]
    permuted, sink = correct(query[:, order], key, rows, replace(how, s_aux=s_aux))
    back = order.argsort()
    return permuted[:, back], None if sink is None else sink[:, back]


def not_causal(correct: Weigh, query: Tensor, key: Tensor, rows: Tensor, how: Weighting) -> object:
    """Every query sees the keys after itself."""
    later = torch.ones(KEYS, KEYS).triu(1).bool()
    mask = torch.ones(1, 1, KEYS, KEYS).bool() if how.mask is None else how.mask | later
    return correct(query, key, rows, replace(how, mask=mask))


MISTAKES: dict[str, Callable[..., object]] = {
    "scale": lambda correct, *given: correct(*given[:3], replace(given[3], scale=given[3].scale * 1.1)),
    "gqa_order": wrong_gqa_order,
    "softcap": lambda correct, *given: correct(*given[:3], replace(given[3], softcap=None)),
    "sink": lambda correct, *given: correct(*given[:3], replace(given[3], s_aux=None)),
    "causal": not_causal,
    "row": lambda correct, query, *rest: correct(query.roll(1, dims=2), *rest),  # row i is that of query i - 1
}

VALUE_MISTAKES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "value_order": lambda values: values.flip(1 if values.shape[1] > 1 else 2),  # of KV heads; of keys, if it has one
    "value_keys": lambda values: values.roll(1, dims=2),
}


def make_mistake(control: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = two_pass._read_block
    if control in VALUE_MISTAKES:
        put, mistake = Buffers.put, VALUE_MISTAKES[control]
        monkeypatch.setattr(
            Buffers,
            "put",
            lambda self, layer, weights, values, *others: put(self, layer, weights, mistake(values), *others),
        )
    elif control == "mask":
        monkeypatch.delitem(AttentionMaskInterface._global_mapping, module.ATTENTION)
    elif control == "window":
        forget_windows(model_of(family), monkeypatch)
    elif control == "token":
        monkeypatch.setattr(two_pass, "_read_block", lambda model, block, kept: step(model, block // 2 + 1, kept))
    elif control == "cache":
        monkeypatch.setattr(two_pass, "BLOCK_BYTES", 1)
        monkeypatch.setattr(two_pass, "_read_block", lambda *given: step(*given[:2], damage_cache(given[2])))
    else:
        monkeypatch.setattr(module, "compute_query_weights", partial(MISTAKES[control], compute_query_weights))


def damage_cache(cache: DynamicCache) -> DynamicCache:
    """The cache with the keys and values of the last token doubled."""
    for layer in cache.layers:
        layer.keys[:, :, -1] *= 2
        layer.values[:, :, -1] *= 2
    return cache


def forget_windows(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers see all keys, and so it is said."""
    monkeypatch.setattr(two_pass, "find_first_keys", lambda config, _query: [0] * config.num_hidden_layers)
    for part in model.modules():
        if isinstance(part, GPTNeoSelfAttention):
            monkeypatch.setitem(part._buffers, "bias", torch.ones_like(part.bias).tril())


CONTROLS = {
    "Llama 2, Llama 3": ("scale", "causal", "row", "gqa_order", *VALUES),
    "Mistral": ("mask",),
    "Gemma 2": ("softcap",),
    "gpt-oss": ("sink",),
    "Granite SWA": ("sink",),
    "Qwen 3 Next": VALUES,
    "GPT-J": ("token", "cache", *VALUES),
    "GPT-Neo": ("window",),
}
"""Deliberate mistakes in a model of each path and each way of comparing, by family."""


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("name", "control"), [(name, control) for name, controls in CONTROLS.items() for control in controls]
)
def test_the_comparison_sees_mistakes_at_every_query(name: str, control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = find_family(name)
    attention_of(name)
    plain_of(name)
    make_mistake(control, name, monkeypatch)
    measured = measure(family)
    if control in VALUES:
        assert min(measured.values) > MISTAKE * bound(family)
    assert measured.first_keys == (control not in {"mask", "window", "causal"})
    for query in SHOWS_AT.get(control, QUERIES):
        assert measured.weights[query] > MISTAKE * bound(family), query


# --- what the weights of all queries are needed for, against the captured and eager's matrices ---

NAMES = list(list_declared(QueryMeasures))
LEVELS = [index for index, name in enumerate(NAMES) if name.endswith("_level") or name in {"n_90", "top_position"}]
"""What a tie of weights or distances decides."""

RECEIVED, OF_PATTERNS = 5e-6, 1e-5
"""Largest differences of what keys receive, and of patterns, from the definitions on eager's matrices."""


def read(family: Family, *, every_query: bool = True) -> Capture:
    """Capture what is measured of the weights of all queries, and these or some of them."""
    known, queries = attention_of(family.name), tuple(range(KEYS)) if every_query else QUERIES
    optional = {"received": True, "every_query": every_query}
    buffers = Buffers(known.layers, batch=2, queries=len(queries), keys=KEYS, dtype=known.dtype, **optional)
    return capture(model_of(family.name), known, ids(), queries, buffers, every_query=every_query)


@pytest.mark.one_case
@every_kind
def test_what_all_queries_look_at_and_select_is_measured(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of queries has 7 rows of 4 heads and chance."""
    layers = len(attention_of(family.name).layers)
    monkeypatch.setattr(blockwise, "BLOCK_BYTES", 7 * 2 * 4 * KEYS * 4)
    monkeypatch.setattr(blockwise, "PATTERN_BYTES", {"cpu": 7 * (4 + 1) * KEYS * 4})
    monkeypatch.setattr(two_pass, "BLOCK_BYTES", layers * 7 * 2 * 4 * KEYS * 4)
    captured = read(family)
    largest, jumps = compare(captured)
    assert largest < 1e-3
    assert jumps < 0.01
    assert_patterns(captured, family)
    without = read(family, every_query=False)
    np.testing.assert_allclose(without.patterns, captured.patterns, atol=OF_PATTERNS)
    for found in (captured, without):
        assert farthest(found, family, importance) < RECEIVED


def assert_patterns(found: Capture, family: Family) -> None:
    """Patterns and their chance are what the definitions make of eager's matrices."""
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


def importance(weights: Tensor) -> Tensor:
    """The scores of Attention-Sink's ``eval_sink_open_source.py``: weights (B, H, T, T) over T - k, summed by query."""
    return (weights.double() / torch.arange(KEYS, 0, -1)).sum(dim=-2)


def farthest(found: Capture, family: Family, definition: Callable[[Tensor], Tensor]) -> float:
    """Largest difference of what keys receive from what a definition makes of eager's matrices."""
    largest = 0.0
    assert found.received is not None
    for layer, weights in plain_of(family.name).weights.items():
        ours = found.received[layer, :, : weights.shape[1]]
        assert found.received[layer, :, weights.shape[1] :].isnan().all()
        largest = max(largest, float((ours - definition(weights)).abs().max()))
    return largest


OTHER_DEFINITIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "over all queries": lambda weights: weights.mean(dim=-2),
    "without its own": lambda weights: importance(weights - weights.diagonal(dim1=-2, dim2=-1).diag_embed()),
    "last query": lambda weights: weights[:, :, -1],
    "by query": lambda weights: weights.sum(dim=-1),
}


def compare(captured: Capture, *, shift: int = 0) -> tuple[float, float]:
    """Largest difference of what no tie decides, and the share of the rest that differs, over all layers and queries.

    shift: of the value states along the keys.
    """
    assert captured.query_measures is not None
    assert captured.context_means is not None
    assert captured.query_keys is not None
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
    seen = (np.arange(KEYS) >= first[1:, None]) & (np.arange(KEYS) <= np.arange(1, KEYS)[:, None])
    largest = -np.sort(-np.where(seen, weights, np.nan))[..., :TOP_KEYS]
    position, weight = found[:, 1:, 0], found[:, 1:, 1]
    np.testing.assert_allclose(weight, largest, atol=1e-5)
    np.testing.assert_array_equal(np.isnan(position), np.isnan(weight))
    assert np.isnan(found[:, 0]).all()
    places, there = np.nan_to_num(position).astype(int), ~np.isnan(position)
    np.testing.assert_allclose(np.take_along_axis(weights, places, axis=-1)[there], weight[there], atol=1e-5)
    assert np.take_along_axis(np.broadcast_to(seen, weights.shape), places, axis=-1)[there].all()
    assert (np.diff(np.sort(position)) != 0).all()


def test_other_definitions_and_value_states_of_other_keys_would_be_noticed() -> None:
    family = find_family("Mistral")
    captured = read(family)
    largest, jumps = compare(captured, shift=1)
    assert largest > 0.1
    assert jumps > 0.1
    for name, definition in OTHER_DEFINITIONS.items():
        assert farthest(captured, family, definition) > 1000 * RECEIVED, name


@pytest.mark.parametrize("name", ["Gemma 2", "gpt-oss", "GPT-J"])  # caps and windows, learned sinks, two passes
def test_rows_handed_over_in_blocks_are_those_of_eager_attention(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sums and largest weights are those of whole matrices."""
    for part in (sparsity, two_pass):
        monkeypatch.setattr(part, "BLOCK_BYTES", 7 * 2 * 4 * KEYS * 4)
    model, attention, expected = model_of(name), attention_of(name), plain_of(name).weights
    found = {layer: torch.full(weights.shape[1:], torch.nan) for layer, weights in expected.items()}
    layers, heads = len(attention.layers), max(size.heads for size in attention.layers)
    sums, of_matrices = (RowSums.begin(ids()[1], layers, heads) for _ in range(2))
    kept, of_whole = (LargestWeights(KEYS, np.ones((layers, heads), bool)) for _ in range(2))

    def take(layer: int, at: Tensor, weights: Tensor) -> None:
        assert len(at) < KEYS
        assert found[layer][:, at].isnan().all()
        found[layer][:, at] = 0
        found[layer][:, at, : weights.shape[-1]] = weights.clone()
        sums.take(layer, at, weights)
        kept.take(layer, at, weights)

    read_rows(model, attention, ids()[1], take)
    for layer, weights in expected.items():
        torch.testing.assert_close(found[layer], weights[1].float(), rtol=0, atol=2e-5)
        of_matrices.take(layer, torch.arange(KEYS), found[layer])
        of_whole.take(layer, torch.arange(KEYS), found[layer])
        for head in range(len(found[layer])):
            for one, other in zip(kept.join(layer, head), of_whole.join(layer, head), strict=True):
                np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(sums.sums, of_matrices.sums, rtol=1e-6)
    np.testing.assert_array_equal(sums.largest, of_matrices.largest)


# --- refused, and the page ---


@pytest.mark.one_case
@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused.config)
def test_families_that_cannot_be_captured_are_refused(refused: Refused) -> None:
    with pytest.raises(UserError, match=refused.message) as refusal:
        probe(made(refused), ids())
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
def test_the_page_has_a_line_for_every_family() -> None:
    """If not: python -m tests.extract.families. It has no figure of one machine."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == write_tables(page)
