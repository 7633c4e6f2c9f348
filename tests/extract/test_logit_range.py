"""Norms of queries and keys: those of the vectors that are multiplied, so that they bound every logit and weight."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import pytest
import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from extract import capture as module
from extract.attention import compute_attended_norms
from extract.capture import Captured, capture
from extract.hub import silence_libraries
from tests.extract.families import FAMILIES, KEYS, QUERIES, Family, attention_of, ids, model_of
from tests.extract.tiny import tiny_model

RELATIVE = 1e-5
"""How far a norm may be from that of the vectors that eager attention multiplies; SDPA and eager drift apart."""

through_the_interface = pytest.mark.parametrize(
    "family", [family for family in FAMILIES if not family.alone], ids=lambda family: family.name.replace(" ", "")
)


@pytest.fixture(autouse=True)
def _noiseless() -> Iterator[None]:
    with silence_libraries():
        yield


@dataclass(frozen=True)
class Multiplied:
    """What one layer gives to the eager attention in its model's source, in float64."""

    query: Tensor
    key: Tensor
    """Once for every query head."""
    visible: Tensor
    """Which keys each query sees, bool (1 or B, 1, K, K)."""
    scale: float
    cap: float | None

    def logits(self) -> Tensor:
        """All of them, (B, H, K, K)."""
        found = self.query @ self.key.transpose(-1, -2) * self.scale
        return found if self.cap is None else self.cap * (found / self.cap).tanh()

    def norms(self) -> tuple[Tensor, Tensor]:
        """Norm of every query times the scale, and the largest norm of a key that it sees, both (B, H, K)."""
        keys = self.key.norm(dim=-1)[:, :, None].expand(-1, -1, KEYS, -1)
        return self.query.norm(dim=-1) * abs(self.scale), keys.where(self.visible, 0).amax(-1)


@cache
def multiplied(name: str) -> dict[int, Multiplied]:
    """By layer, what eager attention multiplies when the model of a family reads ``ids()``."""
    found: dict[int, Multiplied] = {}

    def watching(
        part: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **given: object
    ):
        visible = torch.ones(KEYS, KEYS).tril().bool()[None, None] if mask is None else mask
        scale = query.shape[-1] ** -0.5 if given.get("scaling") is None else given["scaling"]
        each = key.double().repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        found[part.layer_idx] = Multiplied(query.double(), each, visible, scale, given.get("softcap"))
        known = {word: given.get(word) for word in ("softcap", "s_aux") if given.get(word) is not None}
        return module._run_eager(name, part, (query, key, value), mask, scaling=scale, **known)[0], None

    AttentionInterface.register("watching", watching)
    AttentionMaskInterface.register("watching", sdpa_mask)
    model = model_of(name)
    before = model.config._attn_implementation
    model.set_attn_implementation("watching")
    try:
        with torch.inference_mode():
            model.base_model(input_ids=ids(), use_cache=False)
    finally:
        model.set_attn_implementation(before)
    return found


def captured(family: Family) -> Captured:
    return capture(model_of(family.name), attention_of(family.name), ids(), QUERIES)


def bounds(found: Captured) -> Tensor:
    """What no logit is larger than, float64 (L, B, Q, H)."""
    product = found.query_norm.double() * found.key_norm
    caps = found.logit_cap.double()[:, None, None, None]
    return torch.where(caps.isnan(), product, caps * (product / caps).tanh())


def of_queries(tensor: Tensor) -> Tensor:
    """(B, H, K, ...) at ``QUERIES``, (B, Q, H, ...)."""
    return tensor[:, :, QUERIES].transpose(1, 2)


def farthest(family: Family) -> float:
    """Largest relative difference of a captured norm from that of what eager attention multiplies."""
    found, largest = captured(family), 0.0
    for layer, states in multiplied(family.name).items():
        heads = attention_of(family.name).layers[layer].heads
        for ours, theirs in zip((found.query_norm, found.key_norm), states.norms(), strict=True):
            difference = ours[layer, :, :, :heads].double() / of_queries(theirs) - 1
            largest = max(largest, float(difference.abs().max()))
    return largest


@pytest.mark.one_case
@through_the_interface
def test_norms_are_those_of_the_vectors_that_are_multiplied(family: Family) -> None:
    assert sorted(multiplied(family.name)) == [
        layer for layer, size in enumerate(attention_of(family.name).layers) if size.heads
    ]
    assert farthest(family) < RELATIVE
    found = captured(family)
    for layer, size in enumerate(attention_of(family.name).layers):
        for norms in (found.query_norm, found.key_norm):
            assert norms[layer, :, :, : size.heads].isfinite().all()
            assert norms[layer, :, :, size.heads :].isnan().all()


@pytest.mark.one_case
@through_the_interface
def test_no_logit_is_larger_and_every_weight_lies_in_the_interval_they_imply(family: Family) -> None:
    found = captured(family)
    limits = bounds(found) * (1 + RELATIVE)
    for layer, states in multiplied(family.name).items():
        heads = attention_of(family.name).layers[layer].heads
        limit = limits[layer, :, :, :heads]
        visible = of_queries(states.visible.expand(ids().shape[0], heads, -1, -1))
        assert (of_queries(states.logits()).abs().where(visible, 0).amax(-1) <= limit).all()
        assert (limit < 50).all()  # so that the intervals below are not those of numbers that overflow
        count = visible.sum(-1)
        weights = found.weights[layer, :, :, :heads].double()
        shares = weights / weights.sum(-1, keepdim=True)  # of the keys alone, where there is a learned sink
        for sign, inside in ((-1, torch.ge), (1, torch.le)):
            edge = (2 * sign * limit).exp() / count * (1 + sign * RELATIVE)
            assert inside(shares, edge[..., None])[visible].all()


Norms = Callable[..., tuple[Tensor, Tensor]]


def unscaled(correct: Norms, *given: object) -> tuple[Tensor, Tensor]:
    return correct(*given[:4], 1.0)


def of_all_keys(correct: Norms, query: Tensor, key: Tensor, _mask: object, rows: Tensor, scale: float) -> object:
    """Those after the query and outside its window too."""
    everything = torch.ones(1, 1, KEYS, KEYS).bool()
    return correct(query, key, everything, rows, scale)


def of_other_heads(correct: Norms, query: Tensor, key: Tensor, *rest: object) -> object:
    """Query head h reads KV head h % Hkv."""
    of_query, of_key = correct(query, key, *rest)
    return of_query, of_key.unflatten(1, (key.shape[1], -1)).transpose(1, 2).flatten(1, 2)


def of_one_norm(correct: Norms, query: Tensor, key: Tensor, *rest: object) -> object:
    """As if they were normalised for each head, which some models do and most do not."""
    return correct(torch.nn.functional.normalize(query, dim=-1), torch.nn.functional.normalize(key, dim=-1), *rest)


@pytest.mark.parametrize(
    ("mistake", "families"),
    [
        (unscaled, ("Llama 2, Llama 3", "Qwen 3", "DeepSeek-V3", "Granite")),
        (of_all_keys, ("Llama 2, Llama 3", "Mistral", "DeepSeek-V3")),
        (of_other_heads, ("Llama 2, Llama 3", "gpt-oss")),
        (of_one_norm, ("Llama 2, Llama 3", "DeepSeek-V3")),
    ],
)
def test_the_comparison_sees_mistakes(
    mistake: Norms, families: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "compute_attended_norms", partial(mistake, compute_attended_norms))
    for name in families:
        family = next(family for family in FAMILIES if family.name == name)
        assert farthest(family) > 100 * RELATIVE, name


@pytest.mark.parametrize(("name", "normalised"), [("Llama 2, Llama 3", False), ("Qwen 3", True), ("OLMo 2", True)])
def test_norms_are_taken_after_normalisation_of_queries_and_keys(name: str, *, normalised: bool) -> None:
    """Rotation leaves a norm as it is, so that without normalisation the projections tell the same."""
    model, projected = model_of(name), {}
    hooks = [
        layer.self_attn.q_proj.register_forward_hook(lambda *given, n=n: projected.update({n: given[-1]}))
        for n, layer in enumerate(model.model.layers)
    ]
    found = capture(model, attention_of(name), ids(), QUERIES)
    for hook in hooks:
        hook.remove()
    expected = torch.stack([projected[n].unflatten(-1, (4, -1)).norm(dim=-1)[:, QUERIES] / 4 for n in range(3)])
    difference = (found.query_norm / expected - 1).abs()
    if normalised:
        assert difference.min() > 1e-3
        assert difference.max() > 0.1
    else:
        assert difference.max() < RELATIVE


def test_a_bound_below_a_logit_is_noticed() -> None:
    """The interval is no empty promise: with norms that are too small, weights lie outside of it."""
    found = captured(next(family for family in FAMILIES if family.name == "GPT-2"))
    limit = bounds(found) / 20
    shares, count = found.weights.double(), torch.tensor(QUERIES)[:, None] + 1
    assert (shares.amax(-1) > (2 * limit).exp() / count).any()


def test_soft_caps_are_kept_by_layer() -> None:
    assert captured(next(family for family in FAMILIES if family.name == "Gemma 2")).logit_cap.tolist() == [2.0] * 3
    assert capture(tiny_model("llama"), attention_of("Llama 2, Llama 3"), ids(), QUERIES).logit_cap.isnan().all()


@pytest.mark.parametrize("name", ["GPT-J", "GPT-Neo", "Falcon, grouped"])
def test_two_passes_tell_no_norms(name: str) -> None:
    found = captured(next(family for family in FAMILIES if family.name == name))
    for numbers in (found.query_norm, found.key_norm, found.logit_cap):
        assert numbers.isnan().all()


def test_norms_of_a_model_in_half_precision_are_float32() -> None:
    model = tiny_model("llama").to(torch.bfloat16)
    found = capture(model, module.probe(model, ids()), ids(), QUERIES)
    assert found.query_norm.dtype == found.key_norm.dtype == torch.float32
    assert (found.query_norm != found.query_norm.bfloat16()).any()
