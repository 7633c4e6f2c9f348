"""Edited forward passes: nothing edited is the plain pass, heads replaced are those replaced before the projection.

Passes that begin at a layer give what the plain pass gives, and ablation what a whole pass for each head gives.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import get_args
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from benchmarks.effects import ReplacedHeads
from extract.capture import one_pass
from extract.capture.one_pass import Attention, capture, probe
from extract.effects import ablation, interventions
from extract.effects.ablation import (
    REPLACEMENTS,
    LayerEffects,
    PlainPass,
    Replacement,
    ResumableModel,
    ablate,
    compute_mean_of_others,
    compute_mean_outputs,
    count_rows_per_pass,
    estimate_ablation_bytes,
)
from extract.effects.interventions import (
    Edit,
    Recorder,
    compare_losses,
    compute_log_probabilities,
    intervene,
)
from extract.effects.losses import OpenedModel, ablate_heads, measure_heads, open_study
from extract.effects.policies import SHARES, LargestKeys, Rest, SinkAndRecent
from extract.effects.sparsity import SparseEdit, estimate_row_bytes, measure_policy_losses
from extract.extraction import extract
from extract.models import loading as models
from extract.settings import ExtractionSettings
from storage.errors import UserError
from storage.files.places import LocalPlace
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.extract.families import (
    KEYS,
    PROJECTIONS,
    QUERIES,
    Family,
    _projections,
    attention_of,
    bound_logits,
    every_kind_through_the_interface,
    ids,
    model_of,
    sequence,
)
from tests.extract.memory import Held
from tests.extract.tiny import VOCABULARY, WINDOW, spread_out, text, tiny_model, write_checkpoint
from tests.refusals import read_refusal

pytestmark = pytest.mark.usefixtures("noiseless", "inference")

NOTICED = 1e-3
"""Least change of a logit, of standard deviation about 1, by which an edit or a mistake shows: above all rounding."""

TOLERANCE = 2e-6
"""Largest difference allowed to a loss, in nats."""

SHARING = ("Gemma 3n", "Gemma 4, shared")
"""Families in which layers use keys and values of earlier ones."""


@pytest.fixture(autouse=True)
def _few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "SELECTED", 4)


def plain(model: PreTrainedModel, tokens: Tensor | None = None) -> Tensor:
    return model(input_ids=ids() if tokens is None else tokens, use_cache=False).logits


def edited(name: str, edit: Edit) -> Tensor:
    with intervene(model_of(name), attention_of(name), edit):
        return plain(model_of(name))


def attending(name: str) -> list[int]:
    return [layer for layer, size in enumerate(attention_of(name).layers) if size.heads]


@pytest.mark.one_case
@every_kind_through_the_interface
def test_what_changes_nothing_is_the_plain_pass_and_a_zeroed_head_is_zero_at_the_projection(family: Family) -> None:
    """Edits that leave all as it is give it to the last bit; those that compute it again, but for rounding."""
    model, name = model_of(family.name), family.name
    before, expected, recorder = model.config._attn_implementation, plain(model), Recorder()
    assert torch.equal(edited(name, recorder), expected)
    assert recorder.sees_first.keys() == recorder.counts.keys() == {*attending(name)}
    assert model.config._attn_implementation == before
    for rest in get_args(Rest):
        edit = SparseEdit(SinkAndRecent(KEYS, 1, rest=rest))
        assert (edited(name, edit) - expected).abs().max() < bound_logits(name) < NOTICED
        assert edit.keys_kept == pytest.approx(float(torch.stack([*recorder.counts.values()]).double().mean()))
    layers = attending(name)
    for layer, head in ((layers[0], 0), (layers[-1], attention_of(name).layers[layers[-1]].heads - 1)):
        found = edited(name, ReplacedHeads({(layer, head): "zero"}))
        torch.testing.assert_close(found, by_hook(name, layer, head), atol=bound_logits(name), rtol=0)
        assert (found - expected).abs().max() > NOTICED
    assert torch.equal(plain(model), expected)


@pytest.mark.one_case
@every_kind_through_the_interface
def test_a_pass_that_begins_at_a_layer_is_the_plain_pass_to_the_last_bit(family: Family) -> None:
    model, count = model_of(family.name), len(attention_of(family.name).layers)
    resumable = ResumableModel(model, attention_of(family.name), sequence())
    assert resumable.resumes == (False, *[family.name not in SHARING] * (count - 1))
    alone, thrice = plain(model, ids(1)), plain(model, ids(1).expand(3, -1))
    passed = resumable.run_plain(sequence(), range(count))
    assert torch.equal(passed.logits, alone[0])
    assert passed.states.keys() == {layer for layer in range(count) if resumable.resumes[layer]}
    for layer in range(count):
        assert torch.equal(resumable.run(passed, layer, 1), alone)
        copies = resumable.run(passed, layer, 3)  # mixtures of experts round with the number of their tokens
        torch.testing.assert_close(copies, thrice, atol=1e-5, rtol=0)
    assert torch.equal(plain(model, ids(1)), alone)  # nothing is left behind


# --- heads that are replaced, at the projection ---


@contextmanager
def at_the_projection(name: str, layer: int, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within it what goes into the output projection of a layer, (B, K, H * D), is changed."""
    ((_, projection),) = _projections(model_of(name), [layer], PROJECTIONS)
    hook = projection.register_forward_pre_hook(lambda _, given: (change(given[0]), *given[1:]))
    try:
        yield
    finally:
        hook.remove()


def by_hook(name: str, layer: int, head: int) -> Tensor:
    """Logits with one of as many equal parts as there are heads zeroed in what goes in."""

    def change(states: Tensor) -> Tensor:
        changed = states.clone().flatten(2)
        changed.unflatten(-1, (attention_of(name).layers[layer].heads, -1))[:, :, head] = 0
        return changed.reshape(states.shape)

    with at_the_projection(name, layer, change):
        return plain(model_of(name))


@pytest.mark.parametrize("name", ["Llama 2, Llama 3", "GPT-2", "gpt-oss", "DeepSeek-V3"])
def test_heads_replaced_by_their_mean_and_by_position_0(name: str) -> None:
    """In families that do nothing between the weighted sums and the projection.

    The value state of position 0 is that of the head's own KV head; a query whose window hides it goes on as it was.
    """
    model, attention, (first_layer, *_, last_layer) = model_of(name), attention_of(name), attending(name)
    z: dict[int, Tensor] = {}
    for layer in (first_layer, last_layer):
        with at_the_projection(name, layer, lambda states, layer=layer: (z.update({layer: states}), states)[1]):
            plain(model)
        z[layer] = z[layer].flatten(2).unflatten(-1, (attention.layers[layer].heads, -1))
    recorder = Recorder()
    edited(name, recorder)
    torch.testing.assert_close(recorder.means[last_layer], z[last_layer].mean(dim=1), atol=1e-6, rtol=0)
    means = {last_layer: recorder.means[last_layer].mean(dim=0)}
    captured = capture(model, attention, ids(), tuple(range(KEYS)))
    sees = captured.first_key[:, first_layer] == 0
    assert sees.all() == (name != "gpt-oss")
    assert sees[:WINDOW].all()
    size = attention.layers[first_layer]
    first = captured["values"][first_layer, :, 3 // (size.heads // size.kv_heads), 0, : size.head_dim]
    by_mean, by_first = z[last_layer].clone(), z[first_layer].clone()
    by_mean[:, :, 2] = z[last_layer][:, :, 2].mean(dim=(0, 1))
    by_first[:, sees, 3] = first[:, None]
    for layer, head, kind, replaced in ((last_layer, 2, "mean", by_mean), (first_layer, 3, "sink", by_first)):
        with at_the_projection(name, layer, lambda states, made=replaced: made.reshape(states.shape)):
            expected = plain(model)
        found = edited(name, ReplacedHeads({(layer, head): kind}, means))
        torch.testing.assert_close(found, expected, atol=bound_logits(name), rtol=0)
        assert (found - plain(model)).abs().max() > NOTICED
    one_each = edited(name, ReplacedHeads({(last_layer, 2): "mean"}, recorder.means))
    assert (one_each - edited(name, ReplacedHeads({(last_layer, 2): "mean"}, means))).abs().max() > NOTICED


def test_what_cannot_be_edited_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"computes attention in its own code .* leave out effects") as refusal:
        edited("GPT-J", Recorder())
    assert "\n" not in str(refusal.value)
    indexer = next(part for part in model_of("DeepSeek-V3.2").modules() if type(part).__name__.endswith("Indexer"))
    monkeypatch.setattr(type(indexer), "forward", lambda *_, **__: torch.zeros(2, KEYS, WINDOW, dtype=torch.long))
    with pytest.raises(UserError, match=f"chooses {WINDOW} keys for each query"):
        edited("DeepSeek-V3.2", Recorder())


def test_errors_are_passed_on_and_the_model_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "Llama 2, Llama 3"
    model, expected = model_of(name), plain(model_of(name))
    with pytest.raises(RuntimeError, match="scalar type Half"):
        edited(name, Mock(side_effect=RuntimeError("expected scalar type Half")))
    assert one_pass._replaced.get() is None
    resumable = ResumableModel(model, attention_of(name), sequence())
    passed = resumable.run_plain(sequence(), (2,))
    with monkeypatch.context() as patched:
        patched.setattr(model.model.norm, "forward", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            resumable.run(passed, 2, 1)
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(plain(model), expected)


def test_another_thread_gets_the_models_own_attention_meanwhile() -> None:
    model, attention = model_of("Llama 2, Llama 3"), attention_of("Llama 2, Llama 3")
    expected, elsewhere = plain(model), torch.inference_mode()(plain)
    with intervene(model, attention, lambda call: 0 * call.output()), ThreadPoolExecutor(1) as pool:
        assert torch.equal(pool.submit(elsewhere, model).result(), expected)
        assert not torch.equal(plain(model), expected)


# --- passes that begin at a layer ---


def resume(model: PreTrainedModel) -> ResumableModel:
    return ResumableModel(model, probe(model, ids(1)), sequence())


def test_layers_before_it_do_nothing_and_the_hidden_states_decide() -> None:
    """A pass begins at no layer that has a memory of earlier ones, or is not found."""
    model, calls = tiny_model("llama"), Counter[int]()
    resumable = resume(model)
    passed = resumable.run_plain(sequence(), (1, 2))
    for layer, part in enumerate(model.model.layers):
        part.mlp.register_forward_pre_hook(lambda *_, layer=layer: calls.update([layer]))
    resumable.run(passed, 2, 2)
    assert calls == {2: 1}
    resumable.run(passed, 0, 2)
    assert calls == {0: 1, 1: 1, 2: 2}
    other = PlainPass(passed.ids, passed.logits, {layer: state + 1 for layer, state in passed.states.items()})
    assert (resumable.run(other, 2, 1) - passed.logits).abs().max() > 0.1
    made: list[Tensor] = []
    model.model.layers[0].register_forward_hook(lambda *given: made.append(given[-1]))
    model.model.layers[2].register_forward_hook(lambda *given: given[-1] + made[-1].mean())
    assert resume(model).resumes == (False, False, False)
    hidden = tiny_model("llama")
    hidden.model.layers = torch.nn.Sequential(*hidden.model.layers)  # no ModuleList
    hidden.model.layers.__class__.__getitem__ = torch.nn.Sequential.__getitem__
    assert resume(hidden).resumes == (False, False, False)


# --- ablation, against a whole pass for each head ---


def slowly(
    model: PreTrainedModel, attention: Attention, heads: dict[tuple[int, int], Replacement], means: dict[int, Tensor]
) -> tuple[float, float]:
    """Loss and divergence of one whole pass with heads replaced, in float64."""
    own = plain(model, ids(1)).double()
    with intervene(model, attention, ReplacedHeads(heads, means)):
        logits = plain(model, ids(1)).double()
    loss = torch.nn.functional.cross_entropy(logits[0, :-1], sequence()[1:])
    divergence = own.softmax(-1) * (own.log_softmax(-1) - logits.log_softmax(-1))
    return float(loss), float(divergence.sum(-1).mean())


def ablated(name: str, **asked: object) -> list[LayerEffects]:
    model, attention = model_of(name), attention_of(name)
    means = compute_mean_outputs(model, attention, ids(2))
    given = {"kinds": REPLACEMENTS, "means": compute_mean_of_others(means, 0)} | asked
    return list(ablate(ResumableModel(model, attention, sequence()), attention, sequence(), **given))


@pytest.mark.one_case
@every_kind_through_the_interface
def test_heads_lose_what_whole_passes_lose(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first head of the first layer with attention and the last head of the last; three rows together."""
    model, attention = model_of(family.name), attention_of(family.name)
    monkeypatch.setattr(ablation, "count_rows_per_pass", lambda *_: 3)
    layers = sorted({attending(family.name)[0], attending(family.name)[-1]})
    last = attention.layers[layers[-1]].heads - 1
    chosen = [(layers[0], 0), (layers[-1], last)]
    means = compute_mean_of_others(compute_mean_outputs(model, attention, ids(2)), 0)
    found = ablated(family.name, heads=chosen, layers=layers)
    assert [effects.layer for effects in found] == layers
    own, _ = slowly(model, attention, {}, {})
    for effects in found:
        assert effects.plain_loss == pytest.approx(own, abs=TOLERANCE)
        for row, head in np.ndindex(effects.loss.shape):
            kind, numbers = REPLACEMENTS[row], (effects.loss[row, head], effects.kl[row, head])
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
        ("Gemma 2", [False, True, False]),
        ("Llama 4", [False, False, False, True]),
    ],
)
def test_a_sink_that_a_window_hides_is_not_measured_and_rows_together_do_not_matter(
    name: str, measured: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ablated(name)
    assert [bool(np.isfinite(effects.loss[2]).all()) for effects in found] == measured
    assert [bool(np.isnan(effects.loss[2]).all()) for effects in found] == [not known for known in measured]
    assert all(np.isfinite(effects.loss[:2]).all() for effects in found)
    monkeypatch.setattr(ablation, "count_rows_per_pass", lambda *_: 5)
    for ours, theirs in zip(ablated(name), found, strict=True):
        np.testing.assert_allclose(ours.loss, theirs.loss, atol=TOLERANCE)


def test_layers_on_several_devices(tmp_path: Path) -> None:
    """The last layers stay on the disk and come when they are needed, as those of another device would."""
    checkpoint = write_checkpoint(tmp_path / "tiny")
    found = []
    for model in (AutoModelForCausalLM.from_pretrained(checkpoint), spread_out(checkpoint)):
        attention = probe(model, ids(1))
        found.append(list(ablate(resume(model), attention, sequence(), kinds=("zero", "sink"))))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours.loss, theirs.loss)
        np.testing.assert_array_equal(ours.kl, theirs.kl)


@pytest.mark.parametrize("name", ["Llama 2, Llama 3", "Mixtral"])
def test_memory_is_bounded_by_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, attention = model_of(name), attention_of(name)
    one, resumable = estimate_row_bytes(model, KEYS), ResumableModel(model, attention, sequence())
    monkeypatch.setattr(ablation, "ROW_BYTES", {"cpu": 3 * one})
    assert count_rows_per_pass(model, KEYS) == 3
    with Held() as held:
        list(ablate(resumable, attention, sequence(), kinds=("zero",), layers=[len(attention.layers) - 1]))
    own = KEYS * 4 * (2 * VOCABULARY + model.config.get_text_config(decoder=True).hidden_size)
    assert one < held.most <= 3 * one + own <= estimate_ablation_bytes(model, KEYS)
    monkeypatch.setattr(ablation, "ROW_BYTES", {"cpu": 1})
    assert count_rows_per_pass(model, KEYS) == 1


# --- losses ---

WORDS, ROWS = 90, 4


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_losses_are_those_of_the_definition(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded in float32: a sum over all words, and ln p and ln q, which are 2 nats in the mean."""
    generator = torch.Generator().manual_seed(0)
    own = 4 * torch.randn(20, WORDS, generator=generator)
    logits = own + scale * torch.randn(ROWS, 20, WORDS, generator=generator)
    tokens = torch.randint(0, WORDS, (20,), generator=generator)
    p, q = own.double().softmax(-1), logits.double().softmax(-1)
    losses = [-float(row[torch.arange(19), tokens[1:]].log().mean()) for row in q]
    divergences = (p * (p / q).log()).sum(-1).mean(-1)
    for block in (4 * ROWS * WORDS * 7, 1):
        monkeypatch.setattr(interventions, "BLOCK_BYTES", block)
        loss, kl = compare_losses(logits, compute_log_probabilities(own), tokens)
        assert loss.tolist() == pytest.approx(losses, abs=1e-6)
        assert kl.tolist() == pytest.approx(divergences.tolist(), rel=WORDS * 2.0**-24, abs=2.0**-22)
    assert divergences.min() > 1e-8
    assert compare_losses(own.expand(3, -1, -1), compute_log_probabilities(own), tokens)[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["gpt_oss", "llama"])
def test_half_precision_gives_float32_rows_its_own_values_and_losses(family: str, dtype: torch.dtype) -> None:
    model = tiny_model(family).to(dtype)
    attention, resumable = probe(model, ids(1)), resume(model)
    captured = capture(model, attention, ids(), QUERIES)
    assert captured["attention"].dtype == captured["learned_sink"].dtype == torch.float32
    assert attention.dtype == captured["values"].dtype == dtype
    assert (captured["attention"].sum(-1) + captured["learned_sink"] - 1).abs().max() < 1e-6
    assert resumable.resumes == (False, True, True)
    for effects in ablate(resumable, attention, sequence(), kinds=("zero",)):
        for head in range(4):
            expected = slowly(model, attention, {(effects.layer, head): "zero"}, {})
            assert effects.loss[0, head] == pytest.approx(expected[0], abs=0.05)
            assert effects.kl[0, head] == pytest.approx(expected[1], rel=0.3)


# --- heads of a study that was extracted ---

SEQUENCES, CONTEXT = 4, 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint ``qwen3`` (windows in all layers but the first), the text ``book.txt``, and a study's ``store``."""
    folder = tmp_path_factory.mktemp("effects")
    write_checkpoint(folder / "qwen3", "qwen3")
    (folder / "book.txt").write_text(text(400), encoding="utf-8")
    extract(settings(folder), study="tiny", path=LocalPlace(folder / "store"))
    return folder


def settings(folder: Path, **others: object) -> ExtractionSettings:
    given = {"model": str(folder / "qwen3"), "corpus": str(folder / "book.txt"), "context_length": CONTEXT}
    return ExtractionSettings.model_validate(given | {"sequences": SEQUENCES} | others)


def store(folder: Path) -> SequenceStore:
    return SequenceStore.open(LocalPlace(folder / "store"), TENSORS)


@pytest.fixture(scope="module")
def opened(folder: Path) -> OpenedModel:
    return open_study(settings(folder), store(folder))


def test_means_are_those_of_all_other_sequences_of_the_study(opened: OpenedModel) -> None:
    ids = opened.select_ids(SEQUENCES)
    means = compute_mean_of_others(compute_mean_outputs(opened.model, opened.attention, ids), 1)
    with intervene(opened.model, opened.attention, ReplacedHeads({(2, 3): "mean"}, means)), torch.inference_mode():
        logits = opened.model(input_ids=ids[1:2], use_cache=False).logits[0].double()
    expected = torch.nn.functional.cross_entropy(logits[:-1], ids[1, 1:])
    done = [(0, 0), (0, 1), (0, 2), (1, 0)]  # before it was stopped
    found = list(ablate_heads(opened, sequences=2, kinds=("mean",), done=done))
    assert [(sequence, piece.layer) for sequence, piece in found] == [(1, 1), (1, 2)]
    assert found[1][1].loss[0, 3] == pytest.approx(float(expected), abs=2e-6)
    alone = compute_mean_outputs(opened.model, opened.attention, ids[:1])
    assert "there is only one; set sequences to 2 or more" in read_refusal(compute_mean_of_others, alone, 0)


def test_heads_are_those_of_the_model_with_the_keys_that_their_windows_show(folder: Path, opened: OpenedModel) -> None:
    np.testing.assert_array_equal(opened.tokens, store(folder).read("tokens", ...))
    heads = measure_heads(opened, sequences=2)
    assert heads.present.tolist() == [[True] * 4] * 3
    assert heads.counts[0].tolist() == [*range(1, CONTEXT + 1)]
    assert heads.counts[1].tolist() == [min(n, WINDOW) for n in range(1, CONTEXT + 1)]
    assert heads.mass_keys is not None
    assert heads.mass_keys.shape == SHARES.shape
    assert (np.diff(heads.mass_keys) >= 0).all()


def refusal(folder: Path, path: Path | None = None, **others: object) -> str:
    store = SequenceStore.open(LocalPlace(path or folder / "store"), TENSORS)
    return read_refusal(open_study, settings(folder, **others), store)


def test_a_study_without_a_model_and_a_model_that_has_changed(folder: Path, tmp_path: Path) -> None:
    assert "A synthetic study has no model whose heads could be changed" in refusal(
        folder, model="synthetic", corpus=None
    )
    write_checkpoint(tmp_path / "qwen3", "qwen3", seed=1)
    (tmp_path / "book.txt").write_bytes((folder / "book.txt").read_bytes())
    assert "has changed since the study was extracted (sha256)" in refusal(tmp_path, folder / "store")


def test_the_commit_of_a_hub_id_is_the_one_that_was_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {"model": {"id": "acme/tiny", "commit": "c0ffee"}, "corpus": {}}
    monkeypatch.setattr(SequenceStore, "provenance", {"inputs": inputs})
    monkeypatch.setattr(models, "describe", described := Mock(side_effect=UserError))
    refusal(folder, model={"id": "acme/tiny", "revision": "main"})
    assert [call.args[0].model.revision for call in described.call_args_list] == ["c0ffee"]


def test_more_sequences_than_the_study_has(opened: OpenedModel) -> None:
    for sequences in (0, SEQUENCES + 1):
        said = f"Effects are requested on {sequences} sequences, but the study has {SEQUENCES}"
        assert said in read_refusal(opened.select_ids, sequences)


def test_lack_of_memory_is_one_line(opened: OpenedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = [LargestKeys("same_n", "N=2", np.full((3, 4), 2))]
    held_out = opened.select_held_out(2)
    monkeypatch.setattr(opened.model.model.norm, "forward", Mock(side_effect=torch.OutOfMemoryError))
    with pytest.raises(UserError, match="There is not enough memory for a forward pass of Qwen3ForCausalLM"):
        measure_policy_losses(opened.model, opened.attention, held_out[0], policies)
