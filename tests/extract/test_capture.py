"""What capture gives beyond agreeing with eager (``test_families``): keys, memory, restored models, refusals."""

import copy
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
import transformers.models.llama.modeling_llama as llama_module
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Lfm2Config,
    Phi3Config,
    PreTrainedModel,
)
from transformers.models.llama.modeling_llama import LlamaAttention

from extract.capture import attention as blockwise
from extract.capture.attention import run_on_threads
from extract.capture.buffers import Buffers
from extract.capture.one_pass import NO_LAYER, capture, probe
from extract.extraction import extract
from extract.settings import ExtractionSettings
from geometry.quantities import PATTERNS
from storage.errors import UserError
from storage.files.places import LocalPlace
from storage.zarr.arrays import LayerSize
from tests.extract.families import KEYS, QUERIES, attention_of, every_family, ids, model_of
from tests.extract.memory import Held
from tests.extract.tiny import PLAIN, VOCABULARY, WINDOW, save, text, tiny_model
from tests.geometry.draws import draw_layer
from tests.refusals import read_refusal

pytestmark = pytest.mark.usefixtures("noiseless")


def test_weights_within_a_window_may_be_too_small_for_a_number() -> None:
    model = copy.deepcopy(model_of("GPT-Neo"))
    for layer in model.transformer.h:
        layer.attn.attention.q_proj.weight.data *= 300
    captured = capture(model, attention_of("GPT-Neo"), ids(), QUERIES)
    first = KEYS - WINDOW
    assert captured.first_key[-1].tolist() == [0, first] * 2
    assert (captured.weights[1::2, :, -1, :, first] == 0).flatten(1).all(1).any()  # in all heads of a layer


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
    assert captured.weights.is_pinned()
    torch.testing.assert_close(captured.weights, expected.weights, atol=1e-4, rtol=0, equal_nan=True)
    torch.testing.assert_close(captured.learned_sink, expected.learned_sink, atol=1e-4, rtol=0, equal_nan=True)
    torch.testing.assert_close(captured.received, expected.received, atol=1e-4, rtol=0, equal_nan=True)
    torch.testing.assert_close(captured.values, expected.values, atol=1e-3, rtol=0, equal_nan=True)
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
    monkeypatch.setattr(model_of(name).base_model, "forward", partial(fail, error))
    with pytest.raises(UserError, match=f"ForCausalLM cannot read {KEYS} plain tokens: .*Language unknown") as refusal:
        probe(model_of(name), ids(1))
    assert "\n" not in str(refusal.value)


def fail(error: Exception, *_: object, **__: object) -> NoReturn:
    raise error


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
    assert (buffers.tensors["weights"] == numbers[:, None, None, None, None]).all()
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
