"""Wrappers around a model, and models that read more than their text: the same as inside, or one line.

The wrappers are built as those of PEFT 0.21 are (``peft.peft_model``): ``PeftModelForCausalLM`` holds the model as
``base_model``, concatenates a learned prompt with the embeddings, or gives a learned prefix as the cache.
"""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    MptConfig,
    PreTrainedModel,
)

from attention_geometry import analyze
from extract.models.architectures import find_most_tokens
from extract.models.loading import describe
from tests.extract.tiny import VOCABULARY, settings, text, tiny_model, tiny_tokenizer, write_checkpoint
from tests.refusals import read_refusal

TEXT = text(6)


class Wrapper(nn.Module):
    """What passes its input on to a model, whose attributes it also has."""

    def __init__(self, base_model: nn.Module) -> None:
        super().__init__()
        self.base_model = base_model

    def __getattr__(self, name: str) -> object:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.base_model, name)

    def forward(self, input_ids: Tensor, **given: object) -> object:
        """The output of the model."""
        return self.base_model(input_ids=input_ids, **given)


class PromptTuning(Wrapper):
    """A learned prompt before the embeddings of the text."""

    def forward(self, input_ids: Tensor, **given: object) -> object:
        """The output of the model, also at the prompt."""
        own = self.base_model.get_input_embeddings()(input_ids)
        return self.base_model(inputs_embeds=torch.cat([torch.ones(1, 5, 64), own], dim=1), **given)


class AdaptedAttention(Wrapper):
    """Attention and, after a softmax of its own, learned keys."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.adaption_prompt = nn.Parameter(torch.ones(1, 4, 64))


def give_prompts(model: PreTrainedModel) -> nn.Module:
    """A model with PEFT's ``AdaptedAttention``."""
    model.model.layers[1].self_attn = AdaptedAttention(model.model.layers[1].self_attn)
    return Wrapper(model)


def measure(model: nn.Module) -> pa.Table:
    """What ``analyze`` finds the heads of a model to select."""
    return analyze(model, tiny_tokenizer(), TEXT).selection


def test_a_wrapper_that_changes_weights_is_measured_with_its_changes() -> None:
    inner = tiny_model()
    before = measure(inner)
    for layer in inner.model.layers:
        layer.self_attn.q_proj = nn.Sequential(layer.self_attn.q_proj, nn.Linear(64, 64))
    after = measure(Wrapper(Wrapper(inner)).eval())  # as PEFT's ``PeftModel(LoraModel(model))``
    assert after.equals(measure(inner))  # which the adapter has changed
    assert not after.equals(before)


@pytest.mark.parametrize(
    ("wrap", "said"),
    [
        (PromptTuning, "computes other numbers than the LlamaForCausalLM inside it, as with a learned prompt"),
        (give_prompts, r"learned keys beside those of the text (model.layers.1.self_attn.adaption_prompt)"),
        (lambda _: nn.Linear(2, 2), "Linear has no model of transformers inside"),
        (lambda model: nn.Sequential(nn.Linear(2, 2), model), "Sequential cannot read plain tokens"),
    ],
)
def test_a_wrapper_that_computes_something_else_is_refused(wrap: Callable[[nn.Module], nn.Module], said: str) -> None:
    assert said in read_refusal(measure, wrap(tiny_model()))


def test_a_checkpoint_of_an_encoder_decoder_is_refused_before_its_weights(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "bart")
    BartConfig(vocab_size=VOCABULARY, d_model=64).save_pretrained(path)
    said = read_refusal(describe, settings(path))
    assert f"The model '{path}' of type 'bart' is an encoder–decoder" in said


def test_the_most_tokens_are_those_of_the_configuration_or_of_a_learned_table() -> None:
    gpt2 = tiny_model("gpt2")
    assert find_most_tokens(gpt2) == 64
    gpt2.transformer.wpe = nn.Embedding(8, 64)
    assert find_most_tokens(gpt2) == 8
    assert "but GPT2LMHeadModel reads at most 8; give a shorter text" in read_refusal(measure, gpt2)
    mpt = MptConfig(d_model=64, n_heads=4, n_layers=1, vocab_size=VOCABULARY, max_seq_len=8)
    assert "but MptForCausalLM reads at most 8" in read_refusal(measure, AutoModelForCausalLM.from_config(mpt).eval())
