"""Ablation of single heads, against a whole forward pass for each with its outputs replaced one by one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from benchmarks.effects import ReplacedHeads
from extract import ablation as module
from extract.ablation import (
    REPLACEMENTS,
    LayerEffects,
    Replacement,
    ResumableModel,
    ablate,
    compute_mean_of_others,
    compute_mean_outputs,
    count_rows_per_pass,
    estimate_ablation_bytes,
)
from extract.capture import Attention, probe
from extract.interventions import intervene
from extract.sparsity import estimate_row_bytes
from storage.errors import UserError
from tests.extract.families import Family, attention_of, every_kind_through_the_interface, ids, model_of
from tests.extract.memory import Held
from tests.extract.tiny import VOCABULARY, spread_out, tiny_model, write_checkpoint

pytestmark = pytest.mark.usefixtures("noiseless", "inference")

TOLERANCE = 2e-6
"""Largest difference allowed to a loss, in nats."""


@pytest.fixture(autouse=True)
def _few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SELECTED", 4)


def sequence() -> Tensor:
    return ids(1)[0]


def slowly(
    model: PreTrainedModel, attention: Attention, heads: dict[tuple[int, int], Replacement], means: dict[int, Tensor]
) -> tuple[float, float]:
    """Loss and divergence of one whole pass with heads replaced, in float64."""
    plain = model(input_ids=sequence()[None], use_cache=False).logits.double()
    with intervene(model, attention, ReplacedHeads(heads, means)):
        logits = model(input_ids=sequence()[None], use_cache=False).logits.double()
    loss = torch.nn.functional.cross_entropy(logits[0, :-1], sequence()[1:])
    divergence = plain.softmax(-1) * (plain.log_softmax(-1) - logits.log_softmax(-1))
    return float(loss), float(divergence.sum(-1).mean())


def ablated(name: str, **asked: object) -> list[LayerEffects]:
    model, attention = model_of(name), attention_of(name)
    means = compute_mean_outputs(model, attention, ids(2))
    given = {"kinds": REPLACEMENTS, "means": compute_mean_of_others(means, 0)} | asked
    return list(ablate(ResumableModel(model, probe(model, ids(1)), sequence()), attention, sequence(), **given))


@pytest.mark.one_case
@every_kind_through_the_interface
def test_heads_lose_what_whole_passes_lose(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first head of the first layer with attention and the last head of the last; three rows together."""
    model, attention = model_of(family.name), attention_of(family.name)
    monkeypatch.setattr(module, "count_rows_per_pass", lambda *_: 3)
    attending = [layer for layer, size in enumerate(attention.layers) if size.heads]
    layers = sorted({attending[0], attending[-1]})
    last = attention.layers[layers[-1]].heads - 1
    chosen = [(layers[0], 0), (layers[-1], last)]
    means = compute_mean_of_others(compute_mean_outputs(model, attention, ids(2)), 0)
    found = ablated(family.name, heads=chosen, layers=layers)
    assert [effects.layer for effects in found] == layers
    plain, _ = slowly(model, attention, {}, {})
    for effects in found:
        assert effects.plain_loss == pytest.approx(plain, abs=TOLERANCE)
        for (row, kind), head in (
            (at, head) for at in enumerate(REPLACEMENTS) for head in range(effects.loss.shape[1])
        ):
            numbers = effects.loss[row, head], effects.kl[row, head]
            if (effects.layer, head) not in chosen or (kind == "sink" and np.isnan(numbers[0])):
                assert np.isnan(numbers).all()
                continue
            expected = slowly(model, attention, {(effects.layer, head): kind}, means)
            assert numbers == pytest.approx(expected, abs=TOLERANCE)
            assert expected[1] > 4 * TOLERANCE  # the smallest, of `selected` in a window of 16 tokens, is 1.0e-5
    assert not np.isnan(found[-1].loss[:2, last]).any()


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("Llama 2, Llama 3", [True, True, True]),
        ("Mistral", [False, False, False]),
        ("Gemma 2", [False, True, False]),
        ("Llama 4", [False, False, False, True]),
    ],
)
def test_a_sink_that_a_window_hides_is_not_measured(name: str, measured: list[bool]) -> None:
    found = ablated(name)
    assert [bool(np.isfinite(effects.loss[2]).all()) for effects in found] == measured
    assert [bool(np.isnan(effects.loss[2]).all()) for effects in found] == [not known for known in measured]
    assert all(np.isfinite(effects.loss[:2]).all() for effects in found)


@pytest.mark.parametrize("together", [1, 5])
def test_how_many_rows_go_together_does_not_matter(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ablated("Qwen 3")
    monkeypatch.setattr(module, "count_rows_per_pass", lambda *_: together)
    for ours, theirs in zip(ablated("Qwen 3"), expected, strict=True):
        np.testing.assert_allclose(ours.loss, theirs.loss, atol=TOLERANCE)


def test_the_mean_is_that_of_other_sequences() -> None:
    name = "Llama 2, Llama 3"
    means = compute_mean_outputs(model_of(name), attention_of(name), ids(3))
    assert {layer: tuple(mean.shape) for layer, mean in means.items()} == dict.fromkeys(range(3), (3, 4, 16))
    alone = compute_mean_outputs(model_of(name), attention_of(name), ids(3)[1:2])
    torch.testing.assert_close(means[2][1:2], alone[2])
    torch.testing.assert_close(compute_mean_of_others(means, 1)[2], (means[2][0] + means[2][2]) / 2)
    with pytest.raises(UserError, match="there is only one; set sequences to 2 or more"):
        compute_mean_of_others(alone, 0)
    with pytest.raises(ValueError, match="means: no means are given"):
        ablated(name, means=None)


@pytest.mark.one_case
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss"])
def test_half_precision(family: str, dtype: torch.dtype) -> None:
    model = tiny_model(family).to(dtype)
    attention, resumable = probe(model, ids(1)), ResumableModel(model, probe(model, ids(1)), sequence())
    assert resumable.resumes == (False, True, True)
    for effects in ablate(resumable, attention, sequence(), kinds=("zero",)):
        for head in range(4):
            expected = slowly(model, attention, {(effects.layer, head): "zero"}, {})
            assert effects.loss[0, head] == pytest.approx(expected[0], abs=0.05)
            assert effects.kl[0, head] == pytest.approx(expected[1], rel=0.3)


def test_layers_on_several_devices(tmp_path: Path) -> None:
    """The last layers stay on the disk and come when they are needed, as those of another device would."""
    checkpoint = write_checkpoint(tmp_path / "tiny")
    found = []
    for model in (AutoModelForCausalLM.from_pretrained(checkpoint), spread_out(checkpoint)):
        attention = probe(model, ids(1))
        resumable = ResumableModel(model, attention, sequence())
        found.append(list(ablate(resumable, attention, sequence(), kinds=("zero", "sink"))))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours.loss, theirs.loss)
        np.testing.assert_array_equal(ours.kl, theirs.kl)


@pytest.mark.parametrize("name", ["Llama 2, Llama 3", "gpt-oss", "Mixtral", "Gemma 3n"])
def test_memory_is_bounded_by_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, attention = model_of(name), attention_of(name)
    one, resumable = estimate_row_bytes(model, len(sequence())), ResumableModel(model, probe(model, ids(1)), sequence())
    monkeypatch.setattr(module, "ROW_BYTES", {"cpu": 3 * one})
    assert count_rows_per_pass(model, len(sequence())) == 3
    with Held() as held:
        list(ablate(resumable, attention, sequence(), kinds=("zero",), layers=[len(attention.layers) - 1]))
    plain = len(sequence()) * 4 * (2 * VOCABULARY + model.config.get_text_config(decoder=True).hidden_size)
    assert one < held.most <= 3 * one + plain <= estimate_ablation_bytes(model, len(sequence()))
    monkeypatch.setattr(module, "ROW_BYTES", {"cpu": 1})
    assert count_rows_per_pass(model, len(sequence())) == 1
