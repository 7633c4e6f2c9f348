"""Edited forward passes: nothing edited is the plain pass, heads replaced are those replaced before the projection."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from benchmarks.effects import ReplacedHeads
from extract import interventions as module
from extract.capture import capture
from extract.interventions import Call, Edit, IdentityEdit, Recorder, intervene
from storage.errors import UserError
from tests.extract.families import (
    KEYS,
    PROJECTIONS,
    Family,
    _projections,
    attention_of,
    bound_logits,
    every_kind_through_the_interface,
    ids,
    model_of,
)
from tests.extract.tiny import WINDOW

pytestmark = pytest.mark.usefixtures("noiseless", "inference")

NOTICED = 1e-3
"""Least change of a logit, of standard deviation about 1, by which an edit or a mistake shows: above all rounding."""


def plain(model: PreTrainedModel) -> Tensor:
    return model(input_ids=ids(), use_cache=False).logits


def edited(name: str, edit: Edit) -> Tensor:
    with intervene(model_of(name), attention_of(name), edit):
        return plain(model_of(name))


def attending(name: str) -> list[int]:
    return [layer for layer, size in enumerate(attention_of(name).layers) if size.heads]


@pytest.mark.one_case
@every_kind_through_the_interface
def test_nothing_edited_is_the_plain_pass_to_the_last_bit(family: Family) -> None:
    model = model_of(family.name)
    before, expected = model.config._attn_implementation, plain(model)
    assert torch.equal(edited(family.name, IdentityEdit()), expected)
    assert torch.equal(edited(family.name, Recorder()), expected)
    assert model.config._attn_implementation == before
    assert torch.equal(plain(model), expected)


Hook = Callable[[Tensor], Tensor]


@contextmanager
def at_the_projection(name: str, layer: int, change: Hook, *, after: bool = False) -> Iterator[None]:
    """Within it what goes into the output projection of a layer, (B, K, H * D), or comes out of it is changed."""
    ((_, projection),) = _projections(model_of(name), [layer], PROJECTIONS)
    if after:
        hook = projection.register_forward_hook(lambda _, __, output: change(output))
    else:
        hook = projection.register_forward_pre_hook(lambda _, given: (change(given[0]), *given[1:]))
    try:
        yield
    finally:
        hook.remove()


def without(head: int, heads: int) -> Hook:
    """Zero one of so many equal parts of the last axis (or axes)."""

    def change(states: Tensor) -> Tensor:
        changed = states.clone().flatten(2)
        changed.unflatten(-1, (heads, -1))[:, :, head] = 0
        return changed.reshape(states.shape)

    return change


def by_hook(name: str, layer: int, head: int, *, after: bool = False) -> Tensor:
    change = without(head, attention_of(name).layers[layer].heads)
    with at_the_projection(name, layer, change, after=after):
        return plain(model_of(name))


@pytest.mark.one_case
@every_kind_through_the_interface
def test_a_zeroed_head_is_zero_in_what_goes_into_the_projection(family: Family) -> None:
    layers, expected = attending(family.name), plain(model_of(family.name))
    for layer, head in ((layers[0], 0), (layers[-1], attention_of(family.name).layers[layers[-1]].heads - 1)):
        found = edited(family.name, ReplacedHeads({(layer, head): "zero"}))
        torch.testing.assert_close(found, by_hook(family.name, layer, head), atol=bound_logits(family.name), rtol=0)
        assert (found - expected).abs().max() > NOTICED > bound_logits(family.name)


@pytest.mark.parametrize("name", ["GPT-2", "Falcon H1", "gpt-oss"])
def test_replacing_what_comes_out_of_the_projection_is_noticed(name: str) -> None:
    """The mistake of several tools: every part of the projection's output mixes all heads and has its bias."""
    found = edited(name, ReplacedHeads({(attending(name)[0], 1): "zero"}))
    assert (found - by_hook(name, attending(name)[0], 1, after=True)).abs().max() > NOTICED


def z_of(name: str, layer: int) -> Tensor:
    """What goes into the projection of a layer, by head, (B, K, H, D)."""
    found: list[Tensor] = []
    with at_the_projection(name, layer, lambda states: (found.append(states), states)[1]):
        plain(model_of(name))
    return found[0].flatten(2).unflatten(-1, (attention_of(name).layers[layer].heads, -1))


PLAIN_PROJECTION = ("Llama 2, Llama 3", "GPT-2", "gpt-oss", "DeepSeek-V3")
"""Families that do nothing between the weighted sums and the projection."""


@pytest.mark.parametrize("name", PLAIN_PROJECTION)
def test_a_head_replaced_by_its_mean(name: str) -> None:
    layer = attending(name)[-1]
    z = z_of(name, layer)
    recorder = Recorder()
    edited(name, recorder)
    torch.testing.assert_close(recorder.means[layer], z.mean(dim=1), atol=1e-6, rtol=0)
    means = {layer: recorder.means[layer].mean(dim=0)}

    def change(states: Tensor) -> Tensor:
        changed = z.clone()
        changed[:, :, 2] = z[:, :, 2].mean(dim=(0, 1))
        return changed.reshape(states.shape)

    with at_the_projection(name, layer, change):
        expected = plain(model_of(name))
    found = edited(name, ReplacedHeads({(layer, 2): "mean"}, means))
    torch.testing.assert_close(found, expected, atol=bound_logits(name), rtol=0)
    one_each = edited(name, ReplacedHeads({(layer, 2): "mean"}, recorder.means))
    assert (one_each - found).abs().max() > NOTICED
    with pytest.raises(ValueError, match=f"no mean of the outputs of layer {layer}"):
        edited(name, ReplacedHeads({(layer, 2): "mean"}))


@pytest.mark.parametrize("name", PLAIN_PROJECTION)
def test_a_head_that_attends_to_position_0_alone(name: str) -> None:
    """Of its own KV head; a query whose window hides position 0 goes on as it was."""
    layer, head = attending(name)[0], 3
    attention = attention_of(name)
    captured = capture(model_of(name), attention, ids(), tuple(range(KEYS)))
    sees = captured.first_key[:, layer] == 0
    assert sees.all() == (name != "gpt-oss")
    assert sees[:WINDOW].all()
    size = attention.layers[layer]
    first = captured.values[layer, :, head // (size.heads // size.kv_heads), 0, : size.head_dim]
    z = z_of(name, layer)

    def change(states: Tensor) -> Tensor:
        changed = z.clone()
        changed[:, sees, head] = first[:, None]
        return changed.reshape(states.shape)

    with at_the_projection(name, layer, change):
        expected = plain(model_of(name))
    found = edited(name, ReplacedHeads({(layer, head): "sink"}))
    torch.testing.assert_close(found, expected, atol=bound_logits(name), rtol=0)
    assert (found - plain(model_of(name))).abs().max() > NOTICED


def test_what_is_seen_is_told() -> None:
    recorder = Recorder()
    edited("Gemma 2", recorder)
    assert recorder.sees_first == {0: False, 1: True, 2: False}
    assert recorder.counts[1].tolist() == [*range(1, KEYS + 1)]
    assert recorder.counts[0].tolist() == [min(position, WINDOW) for position in range(1, KEYS + 1)]


@pytest.mark.parametrize("name", ["GPT-J"])
def test_models_read_in_two_passes_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"computes attention in its own code .* leave out effects") as refusal:
        edited(name, IdentityEdit())
    assert "\n" not in str(refusal.value)


def test_chosen_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "DeepSeek-V3.2"
    indexer = next(part for part in model_of(name).modules() if type(part).__name__.endswith("Indexer"))
    monkeypatch.setattr(type(indexer), "forward", lambda *_, **__: torch.zeros(2, KEYS, WINDOW, dtype=torch.long))
    with pytest.raises(UserError, match=f"chooses {WINDOW} keys for each query"):
        edited(name, IdentityEdit())


def test_other_errors_are_passed_on_and_the_model_is_restored() -> None:
    class Broken:
        def output(self, _call: Call) -> Tensor:
            raise RuntimeError("expected scalar type Half")

    model = model_of("Llama 2, Llama 3")
    with pytest.raises(RuntimeError, match="scalar type Half"):
        edited("Llama 2, Llama 3", Broken())
    assert model.config._attn_implementation == "sdpa"
    assert not module._edited.get(None)
