"""Every family of models: captured against eager, layer by layer, with deliberate mistakes, and the page of that."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor
from transformers import AttentionMaskInterface, DynamicCache, PreTrainedModel
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention

from extract import attention as blockwise
from extract import capture as module
from extract import two_pass
from extract.architectures import OTHER_KINDS
from extract.attention import Weighting, compute_query_weights
from extract.buffers import Buffers
from extract.capture import capture, probe
from storage.errors import UserError
from tests.extract.families import (
    FAMILIES,
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
    ids,
    made,
    measure,
    model_of,
    plain_of,
    write_tables,
)

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
def test_matches_eager_at_every_query_of_every_layer(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise, "QUERY_BLOCK", 7)  # several blocks, the last one shorter
    measured = measure(family)
    assert max(*measured.weights.values(), *measured.values, measured.sinks) < bound(family)
    assert measured.first_keys
    attention = attention_of(family.name)
    assert [size.heads == 0 for size in attention.layers] == [kind in OTHER_KINDS for kind in attention.kinds]
    assert attention.path == ("two-pass" if family.alone else "AttentionInterface")


Weigh = Callable[..., tuple[Tensor, Tensor | None]]


def wrong_scale(correct: Weigh, query: Tensor, key: Tensor, rows: Tensor, how: Weighting) -> object:
    return correct(query, key, rows, replace(how, scale=how.scale * 1.1))


def wrong_gqa_order(correct: Weigh, query: Tensor, key: Tensor, rows: Tensor, how: Weighting) -> object:
    """Query head h reads KV head h % Hkv."""
    order = torch.arange(query.shape[1]).reshape(-1, key.shape[1]).T.flatten()
    s_aux = None if how.s_aux is None else how.s_aux[order]
    permuted, sink = correct(query[:, order], key, rows, replace(how, s_aux=s_aux))
    back = order.argsort()
    return permuted[:, back], None if sink is None else sink[:, back]


def without_softcap(correct: Weigh, query: Tensor, key: Tensor, rows: Tensor, how: Weighting) -> object:
    return correct(query, key, rows, replace(how, softcap=None))


def without_sink(correct: Weigh, query: Tensor, key: Tensor, rows: Tensor, how: Weighting) -> object:
    return correct(query, key, rows, replace(how, s_aux=None))


def not_causal(correct: Weigh, query: Tensor, key: Tensor, rows: Tensor, how: Weighting) -> object:
    """Every query sees the keys after itself."""
    later = torch.ones(KEYS, KEYS).triu(1).bool()
    mask = torch.ones(1, 1, KEYS, KEYS).bool() if how.mask is None else how.mask | later
    return correct(query, key, rows, replace(how, mask=mask))


def row_before(correct: Weigh, query: Tensor, *rest: object) -> object:
    """Row i is that of query i - 1."""
    return correct(query.roll(1, dims=2), *rest)


MISTAKES: dict[str, Callable[..., object]] = {
    "scale": wrong_scale,
    "gqa_order": wrong_gqa_order,
    "softcap": without_softcap,
    "sink": without_sink,
    "causal": not_causal,
    "row": row_before,
}


def in_another_order(values: Tensor) -> Tensor:
    """The KV heads the other way round; the keys, if there is only one."""
    return values.flip(1 if values.shape[1] > 1 else 2)


def of_the_key_before(values: Tensor) -> Tensor:
    return values.roll(1, dims=2)


VALUE_MISTAKES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "value_order": in_another_order,
    "value_keys": of_the_key_before,
}


def make_mistake(control: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if control in VALUE_MISTAKES:
        put, mistake = Buffers.put, VALUE_MISTAKES[control]
        monkeypatch.setattr(
            Buffers,
            "put",
            lambda self, layer, weights, values, *sinks, **others: put(
                self, layer, weights, mistake(values), *sinks, **others
            ),
        )
    elif control == "mask":
        monkeypatch.delitem(AttentionMaskInterface._global_mapping, module.ATTENTION)
    elif control == "window":
        forget_windows(model_of(family), monkeypatch)
    elif control == "token":
        step = two_pass._read_block
        monkeypatch.setattr(two_pass, "_read_block", lambda model, block, kept: step(model, block // 2 + 1, kept))
    elif control == "cache":
        monkeypatch.setattr(two_pass, "BLOCK_BYTES", 1)
        following = two_pass._read_block
        monkeypatch.setattr(two_pass, "_read_block", lambda *given: following(*given[:2], damage_cache(given[2])))
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
    (family,) = (family for family in FAMILIES if family.name == name)
    attention_of(name)
    plain_of(name)
    make_mistake(control, name, monkeypatch)
    measured = measure(family)
    if control in VALUES:
        assert min(measured.values) > MISTAKE * bound(family)
    assert measured.first_keys == (control not in {"mask", "window"})
    for query in SHOWS_AT.get(control, QUERIES):
        assert measured.weights[query] > MISTAKE * bound(family), query


@pytest.mark.one_case
@every_kind
def test_a_query_is_bit_identical_alone_and_with_others(family: Family) -> None:
    """In models that are not saturated: else the comparison with eager attention would say little."""
    model, attention = model_of(family.name), attention_of(family.name)
    together = capture(model, attention, ids(), QUERIES)
    compare = partial(torch.testing.assert_close, rtol=0, atol=0, equal_nan=True)
    for q, query in enumerate(QUERIES):
        alone = capture(model, attention, ids(), (query,))
        compare(together.weights[:, :, q], alone.weights[:, :, 0])
        compare(together.learned_sink[:, :, q], alone.learned_sink[:, :, 0])
        compare(together.values, alone.values)
        assert torch.equal(together.first_key[q], alone.first_key[0])
        largest = together.weights[:, :, q].amax(-1)
        largest = largest[largest.isfinite()]
        assert largest.numel() > 0
        assert largest.median() < 0.5
        assert (largest < 0.9).float().mean() > 0.9


@pytest.mark.one_case
@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused.config)
def test_families_that_cannot_be_captured_are_refused(refused: Refused) -> None:
    with pytest.raises(UserError, match=refused.message) as refusal:
        probe(made(refused), ids())
    assert "\n" not in str(refusal.value)


def test_the_page_has_a_line_for_every_family() -> None:
    """If not: python -m tests.extract.families. It has no figure of one machine."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == write_tables(page)
