"""Passes that begin at a layer: what the plain pass gives, to the last bit, or not at all."""

from collections import Counter

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from extract import ablation as module
from extract.ablation import ResumableModel
from extract.capture import probe
from tests.extract.families import Family, attention_of, every_kind_through_the_interface, ids, model_of
from tests.extract.tiny import tiny_model

pytestmark = pytest.mark.usefixtures("noiseless", "inference")

SHARING = ("Gemma 3n", "Gemma 4, shared")
"""Families in which layers use keys and values of earlier ones."""


def sequence() -> Tensor:
    return ids(1)[0]


def plain(model: PreTrainedModel, rows: int = 1) -> Tensor:
    return model(input_ids=sequence().expand(rows, -1), use_cache=False).logits


@pytest.mark.one_case
@every_kind_through_the_interface
def test_a_pass_that_begins_at_a_layer_is_the_plain_pass_to_the_last_bit(family: Family) -> None:
    model = model_of(family.name)
    resumable, count = (
        ResumableModel(model, attention_of(family.name), sequence()),
        len(attention_of(family.name).layers),
    )
    if family.name in SHARING:
        assert resumable.resumes == (False,) * count
    else:
        assert resumable.resumes == (False, *[True] * (count - 1))
    passed, alone, thrice = resumable.run_plain(sequence(), range(count)), plain(model), plain(model, 3)
    assert torch.equal(passed.logits, alone[0])
    assert passed.states.keys() == {layer for layer in range(count) if resumable.resumes[layer]}
    for layer in range(count):
        assert torch.equal(resumable.run(passed, layer, 1), alone)
        copies = resumable.run(passed, layer, 3)  # mixtures of experts round with the number of their tokens
        torch.testing.assert_close(copies, thrice, atol=1e-5, rtol=0)
    assert torch.equal(plain(model)[0], passed.logits)  # nothing is left behind


def resumable_llama() -> ResumableModel:
    model = tiny_model("llama")
    return ResumableModel(model, probe(model, ids(1)), sequence())


def test_layers_before_it_do_nothing() -> None:
    model = tiny_model("llama")
    resumable, calls = ResumableModel(model, probe(model, ids(1)), sequence()), Counter[int]()
    passed = resumable.run_plain(sequence(), (1, 2))
    for layer, part in enumerate(model.model.layers):
        part.mlp.register_forward_pre_hook(lambda *_, layer=layer: calls.update([layer]))
    resumable.run(passed, 2, 2)
    assert calls == {2: 1}
    resumable.run(passed, 0, 2)
    assert calls == {0: 1, 1: 1, 2: 2}


def test_the_hidden_states_decide() -> None:
    resumable = resumable_llama()
    passed = resumable.run_plain(sequence(), (1, 2))
    other = module.PlainPass(passed.ids, passed.logits, {layer: state + 1 for layer, state in passed.states.items()})
    assert (resumable.run(other, 2, 1) - passed.logits).abs().max() > 0.1
    with pytest.raises(KeyError):
        resumable.run(resumable.run_plain(sequence(), (1,)), 2, 1)


def test_a_layer_with_a_memory_of_earlier_ones_is_found_out() -> None:
    """What it adds to its hidden states is what the layer before made, which does nothing when a pass begins later."""
    model, made = tiny_model("llama"), []
    model.model.layers[0].register_forward_hook(lambda *given: made.append(given[-1]))
    model.model.layers[2].register_forward_hook(lambda *given: given[-1] + made[-1].mean())
    assert ResumableModel(model, probe(model, ids(1)), sequence()).resumes == (False, False, False)


def test_a_model_whose_layers_are_not_found_begins_at_the_first() -> None:
    model = tiny_model("llama")
    model.model.layers = torch.nn.Sequential(*model.model.layers)  # no ModuleList
    model.model.layers.__class__.__getitem__ = torch.nn.Sequential.__getitem__
    resumable = ResumableModel(model, probe(model, ids(1)), sequence())
    assert resumable.resumes == (False, False, False)
    assert torch.equal(resumable.run(resumable.run_plain(sequence(), (1,)), 1, 1), plain(model))


def test_an_error_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    resumable = ResumableModel(model, probe(model, ids(1)), sequence())
    passed, expected = resumable.run_plain(sequence(), (2,)), plain(model)
    with monkeypatch.context() as patched:
        patched.setattr(model.model.norm, "forward", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            resumable.run(passed, 2, 1)
    assert torch.equal(plain(model), expected)
