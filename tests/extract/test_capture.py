"""Every family of models: captured against eager, with deliberate mistakes, and what else capture gives."""

import copy
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import transformers.models.llama.modeling_llama as llama_module
from torch import Tensor
from transformers import (
    AttentionMaskInterface,
    AutoModelForCausalLM,
    DynamicCache,
    Lfm2Config,
    Phi3Config,
    PreTrainedModel,
)
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention
from transformers.models.llama.modeling_llama import LlamaAttention

from extract.capture import attention as blockwise
from extract.capture import one_pass as module
from extract.capture import two_pass
from extract.capture.attention import Weighting, compute_query_weights, run_on_threads
from extract.capture.batches import check_row, read_alone
from extract.capture.buffers import Buffers
from extract.capture.one_pass import NO_LAYER, Capture, capture, probe
from extract.effects import sparsity
from extract.effects.rows import LargestWeights, RowSums, read_rows
from extract.extraction import extract
from extract.models.architectures import OTHER_KINDS
from extract.settings import ExtractionSettings
from geometry.quantities import PATTERNS, TOP_KEYS, QueryMeasures, list_declared
from geometry.selection.every_query import Contexts, measure_queries
from storage.errors import UserError
from storage.files.places import LocalPlace
from storage.zarr.arrays import LayerSize
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
from tests.extract.memory import Held
from tests.extract.tiny import PLAIN, VOCABULARY, WINDOW, save, text, tiny_model
from tests.geometry.draws import draw_layer
from tests.geometry.patterns_oracle import measure_all
from tests.refusals import read_refusal

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
        same(together["attention"][:, :, q], alone["attention"][:, :, 0])
        same(together["learned_sink"][:, :, q], alone["learned_sink"][:, :, 0])
        same(together["values"], alone["values"])
        assert torch.equal(together.first_key[q], alone.first_key[0])
        largest = together["attention"][:, :, q].amax(-1)
        largest = largest[largest.isfinite()]
        assert largest.median() < 0.5
        assert (largest < 0.9).float().mean() > 0.9
        cut, whole = read_alone(model, attention, ids(1)[0].numpy(), query), one_text["attention"][:, 0, q]
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
    np.testing.assert_allclose(without["head_patterns"], captured["head_patterns"], atol=OF_PATTERNS)
    for found in (captured, without):
        assert farthest(found, family, importance) < RECEIVED


def assert_patterns(found: Capture, family: Family) -> None:
    """Patterns and their chance are what the definitions make of eager's matrices."""
    for layer, weights in plain_of(family.name).weights.items():
        heads = weights.shape[1]
        sees = (weights[..., 0] > 0).any(dim=1).any(dim=0).tolist()
        exact = measure_all(weights, ids(), sees)
        np.testing.assert_allclose(found["head_patterns"][layer, :, :heads], exact, atol=OF_PATTERNS)
        assert (found["pattern_queries"][layer, :, PATTERNS.index("sink")] == sum(sees[1:])).all()
        assert found["head_patterns"][layer, :, heads:].isnan().all()
        visible = (weights > 0).any(dim=1, keepdim=True).double()
        uniform = visible / visible.sum(dim=-1, keepdim=True)
        np.testing.assert_allclose(
            found["pattern_chance"][layer], measure_all(uniform, ids(), sees)[:, 0], atol=OF_PATTERNS
        )


def importance(weights: Tensor) -> Tensor:
    """The scores of Attention-Sink's ``eval_sink_open_source.py``: weights (B, H, T, T) over T - k, summed by query."""
    return (weights.double() / torch.arange(KEYS, 0, -1)).sum(dim=-2)


def farthest(found: Capture, family: Family, definition: Callable[[Tensor], Tensor]) -> float:
    """Largest difference of what keys receive from what a definition makes of eager's matrices."""
    largest = 0.0
    for layer, weights in plain_of(family.name).weights.items():
        ours = found["received_attention"][layer, :, : weights.shape[1]]
        assert found["received_attention"][layer, :, weights.shape[1] :].isnan().all()
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
    largest, jumps = 0.0, []
    for layer, size in enumerate(captured.layers):
        found = captured["query_measures"][layer, :, : size.heads].numpy()
        assert captured["query_measures"][layer, :, size.heads :].isnan().all()
        assert captured["context_means"][layer, :, size.heads :].isnan().all()
        for row in range(2 if size.heads else 0):
            weights = captured["attention"][layer, row, 1:, : size.heads].transpose(0, 1).contiguous().numpy().copy()
            values = captured["values"][layer, row, : size.kv_heads, :, : size.head_dim].float()
            values = values.roll(shift, dims=1).contiguous().numpy()
            first = captured.first_key[:, layer].numpy().astype(np.int64)
            assert_largest(captured["query_keys"][layer, row, : size.heads].numpy(), weights, first)
            expected, *counts = measure_queries(weights, values, first[1:])
            contexts = Contexts.of(first)
            means = np.where(contexts.counts > 0, contexts.average(*counts, slice(1, KEYS)), np.nan)
            of_layer = captured["context_means"][layer, row, : size.heads].transpose(0, 1).numpy()
            jumps.append((np.abs(np.nan_to_num(means - of_layer)) > 1e-4).mean())
            np.testing.assert_array_equal(np.isnan(means), np.isnan(of_layer))
            both = np.stack([getattr(expected, name) for name in NAMES], axis=-1), found[row, :, 1:]
            assert np.isnan(found[row, :, 0]).all()
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


# --- keys, memory, restored models, refusals ---


def test_weights_within_a_window_may_be_too_small_for_a_number() -> None:
    model = copy.deepcopy(model_of("GPT-Neo"))
    for layer in model.transformer.h:
        layer.attn.attention.q_proj.weight.data *= 300
    captured = capture(model, attention_of("GPT-Neo"), ids(), QUERIES)
    first = KEYS - WINDOW
    assert captured.first_key[-1].tolist() == [0, first] * 2
    assert (captured["attention"][1::2, :, -1, :, first] == 0).flatten(1).all(1).any()  # in all heads of a layer


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.mark.gpu
@cuda
@every_family
def test_a_gpu_captures_the_same(family: object) -> None:
    here = model_of(family.name)
    attention = attention_of(family.name)
    room = {"batch": 2, "queries": 3, "keys": KEYS, "dtype": attention.dtype, "received": True}
    expected = capture(here, attention, ids(), QUERIES, Buffers(attention.layers, **room))
    there = AutoModelForCausalLM.from_config(here.config).eval()
    there.load_state_dict(here.state_dict())
    there.to("cuda")
    assert probe(there, ids(1)) == attention
    buffers = Buffers(attention.layers, **room, pin=True)
    captured = capture(there, attention, ids(), QUERIES, buffers)
    captured.wait()
    assert captured["attention"].is_pinned()
    torch.testing.assert_close(captured["attention"], expected["attention"], atol=1e-4, rtol=0, equal_nan=True)
    torch.testing.assert_close(captured["learned_sink"], expected["learned_sink"], atol=1e-4, rtol=0, equal_nan=True)
    torch.testing.assert_close(
        captured["received_attention"], expected["received_attention"], atol=1e-4, rtol=0, equal_nan=True
    )
    torch.testing.assert_close(captured["values"], expected["values"], atol=1e-3, rtol=0, equal_nan=True)
    assert torch.equal(captured.first_key, expected.first_key)


def test_memory_is_that_of_a_block_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 512 keys a head's matrix has 2^18 numbers, a layer's 2^20; a block is told to have 2^16."""
    keys = 512
    monkeypatch.setattr(blockwise, "BLOCK_BYTES", 2**18)
    monkeypatch.setattr(blockwise, "PATTERN_BYTES", {})
    model = tiny_model("llama", max_position_embeddings=keys)
    known = probe(model, ids(1))
    room = {"batch": 1, "queries": 1, "dtype": known.dtype, "received": True}
    with Held() as held:
        capture(model, known, ids(1, keys), (keys - 1,), Buffers(known.layers, keys=keys, **room))
    assert held.largest <= 2**18
    monkeypatch.setattr(blockwise, "BLOCK_BYTES", 1)  # one query at a time, however little room there is
    with Held() as held:
        capture(model, known, ids(1, 64), (63,), Buffers(known.layers, keys=64, **room))
    assert 0 < held.largest <= 64 * 64 * 2 * 4


def unknown_kind() -> PreTrainedModel:
    """Its configuration says that all layers attend; two are convolutions."""
    kinds = ["conv", "full_attention", "conv"]
    settings = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = Lfm2Config(vocab_size=VOCABULARY, num_hidden_layers=3, layer_types=kinds, **settings)
    model = AutoModelForCausalLM.from_config(config)
    model.config.layer_types = ["full_attention"] * 3
    for layer, kind in zip(model.model.layers, kinds, strict=True):
        layer.is_attention_layer = kind == "full_attention"
    return model


def forwarded(**given: object) -> PreTrainedModel:
    """One layer's attention is given something more."""
    model = tiny_model("llama")
    attention = model.model.layers[2].self_attn
    attention.forward = partial(attention.forward, **given)
    return model


def biased() -> PreTrainedModel:
    """One layer adds to its logits at the last query."""
    rows = torch.arange(KEYS) == KEYS - 1
    return forwarded(position_bias=(torch.arange(float(KEYS)) * rows[:, None]).expand(1, 4, KEYS, KEYS))


class Elsewhere(LlamaAttention):
    """Attention in a source, this one, without eager attention."""


def elsewhere() -> PreTrainedModel:
    model = tiny_model("llama")
    model.model.layers[1].self_attn.__class__ = Elsewhere
    return model


UNKNOWN = "attends in layer {} in a way this program does not know"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (unknown_kind, "captured only in part: no attention was seen in layers 0, 2 of 3"),
        (biased, UNKNOWN.format(2)),
        (partial(forwarded, block_indices=torch.zeros(1, 2, KEYS, 1)), "chooses blocks of keys for each query"),
        (elsewhere, "has no eager attention in the source of its Elsewhere"),
    ],
)
def test_models_that_cannot_be_captured_are_refused_by_name(make: Callable[[], PreTrainedModel], message: str) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        probe(make().eval(), ids())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["Llama 2, Llama 3", "GPT-J"])
def test_errors_of_the_models_own_are_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("Language unknown.\nSet one.")
    monkeypatch.setattr(model_of(name).base_model, "forward", Mock(side_effect=error))
    with pytest.raises(UserError, match=f"ForCausalLM cannot read {KEYS} plain tokens: .*Language unknown") as refusal:
        probe(model_of(name), ids(1))
    assert "\n" not in str(refusal.value)


def test_windows_narrower_than_the_models_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, attention = model_of("GPT-Neo"), attention_of("GPT-Neo")
    monkeypatch.setattr(model.config, "window_size", WINDOW - 4)
    with pytest.raises(UserError, match="lets the query at 12 see other keys in layer 1 than its configuration says"):
        capture(model, attention, ids(), (47,))


CAUSAL = torch.ones(2, 1, KEYS, KEYS).tril().bool()


def changed(row: int, key: int, sequence: slice = slice(None), *, seen: bool) -> Tensor:
    """A causal mask, but for whether one query sees one key, in some sequences."""
    mask = CAUSAL.clone()
    mask[sequence, :, row, key] = seen
    return mask


OTHERS_HIDDEN = "hides keys other than the first ones from the query at "


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (CAUSAL & (torch.arange(KEYS) != 5), f"{OTHERS_HIDDEN}9;"),
        (changed(20, 5, seen=False), f"{OTHERS_HIDDEN}20;"),
        (CAUSAL & (torch.arange(KEYS)[:, None] != 20), f"{OTHERS_HIDDEN}20;"),
        (changed(9, 10, slice(1, 2), seen=True), "is not a causal language model"),
        (torch.ones(1, 1, KEYS, KEYS).bool(), "is not a causal language model"),
        (torch.zeros(1, 1, KEYS, KEYS), "a mask of type torch.float32"),
    ],
)
def test_other_masks_are_refused(mask: Tensor, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    attention = probe(model, ids(1))
    monkeypatch.setattr(llama_module, "create_causal_mask", lambda **_: mask)
    with pytest.raises(UserError, match=message):
        capture(model, attention, ids(), QUERIES)


def test_masks_of_single_layers_are_looked_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask that layers share is looked at once, which must not hide another one."""
    model = tiny_model("llama")
    attention = probe(model, ids(1))
    window = CAUSAL.triu(1 - WINDOW)
    masks = [CAUSAL, window.clone(), CAUSAL.clone()]
    for layer, mask in zip(model.model.layers, masks, strict=True):
        part = layer.self_attn
        monkeypatch.setattr(
            part,
            "forward",
            partial(lambda forward, mask, **given: forward(**given | {"attention_mask": mask}), part.forward, mask),
        )
    assert capture(model, attention, ids(), QUERIES).first_key.tolist() == [[0, 0, 0], [0, 5, 0], [0, 32, 0]]


@pytest.mark.parametrize("name", ["Llama 2, Llama 3", "LFM 2"])
def test_a_pass_ends_at_the_attention_of_the_last_layer(name: str) -> None:
    model, calls = copy.deepcopy(model_of(name)), Counter[int]()
    attention = probe(model, ids(1))
    for number, layer in enumerate(model.base_model.layers):
        layer.register_forward_hook(lambda *_, number=number: calls.update([number]))
    capture(model, attention, ids(), QUERIES)
    assert calls == Counter(range(max(number for number, size in enumerate(attention.layers) if size != NO_LAYER)))


def test_queries_before_the_end_are_refused_where_their_rows_are_others(tmp_path: Path) -> None:
    """Of Phi-3 with other positions in texts of more than 32 tokens: texts as long as these are measured."""
    factors = {"short_factor": [1.0] * 8, "long_factor": [1.0, 1.2, 2.0, 4.0, 8.0, 16.0, 32.0, 48.0]}
    rotation = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 32} | factors
    sizes = {**PLAIN, "num_hidden_layers": 2, "num_key_value_heads": 2, "max_position_embeddings": 256}
    torch.manual_seed(0)
    config = Phi3Config(**sizes, original_max_position_embeddings=32, rope_parameters=rotation)
    save(AutoModelForCausalLM.from_config(config), tmp_path / "model")
    (tmp_path / "book.txt").write_text(text(800), encoding="utf-8")

    def run(queries: tuple[int, ...]) -> Any:
        asked = {"model": str(tmp_path / "model"), "corpus": str(tmp_path / "book.txt"), "sequences": 2}
        asked |= {"context_length": 48, "queries": queries}
        return extract(ExtractionSettings.model_validate(asked), study="long", path=LocalPlace(tmp_path / "store"))

    for queries in ((20, 47), (31, 40)):
        said = f"at {queries[0]} otherwise in a text of 48 tokens than in one of {queries[0] + 1}"
        assert said in read_refusal(run, queries)
        assert not (tmp_path / "store").exists()
    assert run((32, 40, 47)).written == 2


def test_parts_run_together_share_the_threads_and_see_the_callers_mode() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    together = threading.Barrier(3, timeout=30)

    def look(index: int) -> tuple[int, int, bool]:
        together.wait()
        return index, torch.get_num_threads(), torch.is_inference_mode_enabled()

    try:
        with torch.inference_mode():
            assert run_on_threads(look, 3, torch.device("cpu")) == [(index, 1, True) for index in range(3)]
        with pytest.raises(ZeroDivisionError):
            run_on_threads(lambda index: 1 // index, 3, torch.device("cpu"))
        with ThreadPoolExecutor(1) as pool:  # a thread that begins later
            assert torch.get_num_threads() == pool.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)


def test_masks_that_change_other_queries_are_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    attention = probe(model, ids(1))
    monkeypatch.setattr(llama_module, "create_causal_mask", lambda **_: changed(21, 5, seen=False))
    assert capture(model, attention, ids(), QUERIES).first_key.tolist() == [[0] * 3] * 3


@pytest.mark.gpu
@cuda
def test_copies_from_a_gpu_outlive_what_they_copy() -> None:
    """The tensors put are freed and their memory is written again while copies may still be under way."""
    layers = (LayerSize(16, 16, 128),) * 16
    buffers = Buffers(layers, batch=2, queries=4, keys=1024, dtype=torch.bfloat16, pin=True)
    for layer in range(len(layers)):
        weights = torch.full((2, 4, 16, 1024), float(layer), device="cuda")
        values = torch.full((2, 1024, 16, 128), float(layer), device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        patterns = (torch.zeros(2, 16, len(PATTERNS)), *torch.zeros(2, 2, len(PATTERNS)))
        buffers.put(layer, weights, values, None, None, [each.cuda() for each in patterns])
        del weights, values
    buffers.wait()
    numbers = torch.arange(float(len(layers)))
    assert (buffers.tensors["attention"] == numbers[:, None, None, None, None]).all()
    assert (buffers.tensors["values"] == numbers[:, None, None, None, None].bfloat16()).all()
    assert (buffers.tensors["learned_sink"] == 0).all()


@pytest.mark.gpu
@cuda
@pytest.mark.parametrize("kind", ["random", "repeated", "underflowed"])
def test_on_a_gpu_every_query_selects_the_same(kind: str) -> None:
    """To the last digit: the counts are exact, and the rest is computed on the CPU."""
    weights, values, first = draw_layer(kind, n=300, window=200, kv_heads=2)
    rows, captured = torch.arange(1, 300), []
    for device in ("cpu", "cuda"):
        of = blockwise.EveryQuery.begin(1, len(weights), np.concatenate([[0], first]))
        value = torch.from_numpy(values.copy())[None].to(device)
        of.add(value, 0, torch.from_numpy(weights.copy()).to(device), rows.to(device))
        captured.append(of.tensors)
    for here, there in zip(*captured, strict=True):
        np.testing.assert_array_equal(here.numpy(), there.numpy())
