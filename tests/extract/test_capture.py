"""Captured weights and value states against eager attention and hooked projections, and what is refused."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
import transformers.models.llama.modeling_llama as llama_module
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AttentionMaskInterface,
    AutoModelForCausalLM,
    BertConfig,
    GPTJConfig,
    Lfm2Config,
    PreTrainedModel,
)
from transformers.models.llama.modeling_llama import LlamaAttention

from extract import capture as module
from extract.capture import capture, last_query_weights, probe
from extract.hub import quiet
from storage.errors import UserError
from tests.extract.tiny import VOCABULARY, WINDOW, tiny_config, tiny_model

KEYS = 48
FAMILIES = ("llama", "mistral", "gemma", "gemma2", "gpt2", "qwen2", "qwen3", "gpt_oss")

WEIGHT_TOLERANCE = 5e-6
"""Largest difference allowed to a softmax weight; eager sums the same float32 products in another order."""

VALUE_TOLERANCE = 1e-4
"""Largest difference allowed to a value state, of norm about 5; SDPA and eager drift apart layer by layer."""

CONTROLS = {
    "scale": FAMILIES,
    "gqa_order": tuple(family for family in FAMILIES if family != "gpt2"),  # GPT-2 has a KV head for every head
    # Without a window no key is hidden from the last query of an unpadded sequence, so no mask can be missed there.
    "mask": ("mistral", "gemma2", "qwen2", "qwen3", "gpt_oss"),
    "softcap": ("gemma2",),
    "sink": ("gpt_oss",),
    "value_order": FAMILIES,
}
"""Deliberate mistakes, and the families in which each can show."""


@pytest.fixture(autouse=True)
def _noiseless() -> Iterator[None]:
    with quiet():
        yield


def ids(batch: int = 2, keys: int = KEYS) -> Tensor:
    return torch.randint(2, VOCABULARY, (batch, keys), generator=torch.Generator().manual_seed(1))


def unsaturated(family: str) -> PreTrainedModel:
    model = tiny_model(family)
    if family == "gpt_oss":
        for layer in model.model.layers:
            torch.nn.init.normal_(layer.self_attn.sinks, mean=2.0)
    return model


def eager(model: PreTrainedModel, input_ids: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """By layer, from eager attention and hooks: last query's weights (B, H, K), value states (B, Hkv, K, D)."""
    values: list[Tensor] = []
    width = getattr(model.config, "head_dim", 16)

    def keep(_module: object, _inputs: object, output: Tensor) -> None:
        of_values = output.chunk(3, dim=-1)[2] if model.config.model_type == "gpt2" else output
        values.append(of_values.unflatten(-1, (-1, width)).transpose(1, 2))

    hooked = [part for name, part in model.named_modules() if name.endswith(("v_proj", "c_attn"))]
    handles = [part.register_forward_hook(keep) for part in hooked]
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        attentions = model(input_ids=input_ids, output_attentions=True).attentions
    model.set_attn_implementation(before)
    for handle in handles:
        handle.remove()
    return [weights[:, :, -1] for weights in attentions], values


def differences(model: PreTrainedModel) -> tuple[list[float], list[float]]:
    """By layer: largest difference of the weights and of the value states."""
    weights, values = eager(model, ids())
    captured = capture(model, ids())
    assert len(weights) == len(values) == captured.weights.shape[1] == 3
    return (
        [(captured.weights[:, layer] - row).abs().max().item() for layer, row in enumerate(weights)],
        [(captured.values[:, layer] - value).abs().max().item() for layer, value in enumerate(values)],
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_matches_eager_in_every_layer(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERY_BLOCK", 7)  # several blocks, the last one shorter
    model = unsaturated(family)
    weights, values = differences(model)
    assert max(weights) < WEIGHT_TOLERANCE
    assert max(values) < VALUE_TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
def test_the_models_compared_are_unsaturated(family: str) -> None:
    largest = capture(unsaturated(family), ids()).weights.amax(-1)
    assert largest.median() < 0.5
    assert (largest < 0.9).float().mean() > 0.9


def wrong_scale(correct: Callable[..., Tensor], *arguments: object) -> Tensor:
    query, key, mask, scale, softcap, s_aux = arguments
    return correct(query, key, mask, scale * 1.1, softcap, s_aux)


def wrong_gqa_order(correct: Callable[..., Tensor], query: Tensor, key: Tensor, *rest: object) -> Tensor:
    """Query head h reads KV head h % Hkv."""
    order = torch.arange(query.shape[1]).reshape(-1, key.shape[1]).T.flatten()
    *settings, s_aux = rest
    permuted = correct(query[:, order], key, *settings, None if s_aux is None else s_aux[order])
    weights = torch.empty_like(permuted)
    weights[:, order] = permuted
    return weights


def without_softcap(correct: Callable[..., Tensor], *arguments: object) -> Tensor:
    query, key, mask, scale, _, s_aux = arguments
    return correct(query, key, mask, scale, None, s_aux)


def without_sink(correct: Callable[..., Tensor], *arguments: object) -> Tensor:
    return correct(*arguments[:5], None)


MISTAKES = {"scale": wrong_scale, "gqa_order": wrong_gqa_order, "softcap": without_softcap, "sink": without_sink}


def make_mistake(control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if control == "mask":
        monkeypatch.delitem(AttentionMaskInterface._global_mapping, module.ATTENTION)
    elif control == "value_order":
        record = module._Recorder.record
        monkeypatch.setattr(
            module._Recorder,
            "record",
            lambda self, layer, weights, value, first: record(self, layer, weights, value.flip(1), first),
        )
    else:
        monkeypatch.setattr(module, "last_query_weights", partial(MISTAKES[control], last_query_weights))


@pytest.mark.parametrize(
    ("control", "family"), [(c, family) for c, families in CONTROLS.items() for family in families]
)
def test_the_comparison_sees_mistakes(control: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = unsaturated(family)
    make_mistake(control, monkeypatch)
    weights, values = differences(model)
    if control == "value_order":
        assert min(values) > 1000 * VALUE_TOLERANCE
    else:
        assert max(weights) > 1000 * WEIGHT_TOLERANCE


@pytest.mark.parametrize(
    ("family", "first_key"),
    [("llama", [0, 0, 0]), ("mistral", [32, 32, 32]), ("gemma2", [32, 0, 32]), ("qwen3", [0, 32, 32])],
)
def test_keys_outside_the_window_weigh_exactly_nothing(family: str, first_key: list[int]) -> None:
    assert KEYS - WINDOW == 32
    captured = capture(tiny_model(family), ids())
    assert captured.first_key.tolist() == first_key
    for layer, first in enumerate(first_key):
        assert (captured.weights[:, layer, :, :first] == 0).all()
        assert (captured.weights[:, layer, :, first:] > 0).all()


def test_rows_sum_to_one_and_leave_out_the_learned_sink() -> None:
    assert capture(tiny_model("qwen2"), ids()).weights.sum(-1) == pytest.approx(1, abs=1e-6)
    sums = capture(unsaturated("gpt_oss"), ids()).weights.sum(-1)
    assert sums.max() < 1
    assert sums.min() < 0.9


def test_a_mask_of_padding_leaves_the_other_keys_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(1, 4, 9, 8, generator=generator), torch.randn(1, 2, 9, 8, generator=generator)
    mask = (torch.ones(9, 9).tril().bool() & (torch.arange(9) >= 3))[None, None]
    padded = last_query_weights(query, key, mask, 0.5, None, None)
    bare = last_query_weights(query[:, :, 3:], key[:, :, 3:], None, 0.5, None, None)
    assert (padded[:, :, :3] == 0).all()
    torch.testing.assert_close(padded[:, :, 3:], bare)
    dropped = last_query_weights(query, key, None, 0.5, None, None)
    assert (dropped[:, :, 3:] - bare).abs().max() > 0.05


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
def test_half_precision_models_give_float32_rows(family: str, dtype: torch.dtype) -> None:
    model = tiny_model(family).to(dtype)
    captured = probe(model, ids())
    assert captured.weights.dtype == captured.values.dtype == torch.float32
    assert (captured.weights.sum(-1) - 1).abs().max() < 1e-6
    assert (captured.values.to(dtype).float() == captured.values).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_gpu_captures_the_same() -> None:
    for family in FAMILIES:
        model = unsaturated(family)
        here, there = capture(model, ids()), probe(model.to("cuda"), ids())
        assert there.weights.device.type == there.values.device.type == "cpu"
        torch.testing.assert_close(there.weights, here.weights, atol=1e-4, rtol=0)
        torch.testing.assert_close(there.values, here.values, atol=1e-3, rtol=0)


def test_memory_grows_linearly_with_the_context() -> None:
    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(
            self, func: Callable[..., object], types: object, args: tuple = (), kwargs=None
        ) -> object:
            output = func(*args, **(kwargs or {}))
            for tensor in output if isinstance(output, tuple | list) else (output,):
                if isinstance(tensor, Tensor):
                    self.elements = max(self.elements, tensor.numel())
            return output

    keys = 1024
    model = tiny_model("llama", max_position_embeddings=keys)
    with Largest() as largest:
        capture(model, ids(1, keys))
    assert 0 < largest.elements <= 3 * keys * 64  # the captured values of 3 layers; one head's matrix is 1024 * 1024


def test_captured_tensors_own_exactly_their_memory() -> None:
    captured = capture(tiny_model("llama"), ids())
    for tensor in (captured.weights, captured.values):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * 4


@pytest.mark.parametrize("before", ["sdpa", "eager"])
def test_the_models_own_attention_is_restored(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    model.set_attn_implementation(before)
    capture(model, ids())
    assert model.config._attn_implementation == before
    monkeypatch.setattr(module, "last_query_weights", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        capture(model, ids())
    assert model.config._attn_implementation == before


SMALL = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def bert() -> PreTrainedModel:
    return AutoModelForCausalLM.from_config(BertConfig(**SMALL, intermediate_size=64, max_position_embeddings=64))


def gptj() -> PreTrainedModel:
    config = GPTJConfig(
        vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, rotary_dim=8, bos_token_id=0, eos_token_id=1
    )
    return AutoModelForCausalLM.from_config(config)


def half_convolutions() -> PreTrainedModel:
    kinds = ["conv", "full_attention", "conv"]
    config = Lfm2Config(
        **SMALL | {"num_hidden_layers": 3}, num_key_value_heads=2, intermediate_size=64, layer_types=kinds
    )
    return AutoModelForCausalLM.from_config(config)


def uneven_heads() -> PreTrainedModel:
    model = tiny_model("llama")
    attention = LlamaAttention(tiny_config("llama", num_key_value_heads=4), 1)
    attention.config = model.config
    model.model.layers[1].self_attn = attention
    return model


def numbered(layer: int | None) -> PreTrainedModel:
    model = tiny_model("llama")
    model.model.layers[1].self_attn.layer_idx = layer
    return model


def biased() -> PreTrainedModel:
    model = tiny_model("llama")
    attention = model.model.layers[2].self_attn
    attention.forward = partial(attention.forward, position_bias=torch.arange(float(KEYS)).expand(1, 4, KEYS, KEYS))
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (bert, "BertLMHeadModel is no causal language model"),
        (gptj, "GPTJForCausalLM does not compute its attention through transformers' AttentionInterface"),
        (half_convolutions, "no softmax attention to capture in layers 0, 2 of 3"),
        (uneven_heads, r"layers of different sizes: the value states of layer 1 are \(4, 48, 16\)"),
        (partial(numbered, 0), "more than once in layer 0"),
        (partial(numbered, None), "outside its 3 numbered layers"),
        (partial(numbered, 3), "outside its 3 numbered layers"),
        (biased, "attends in layer 2 in a way this program does not know"),
    ],
)
def test_models_that_cannot_be_captured_are_refused_by_name(make: Callable[[], PreTrainedModel], message: str) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        probe(make().eval(), ids())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(KEYS, KEYS).tril().bool() & (torch.arange(KEYS) != 5), "hides keys other than the first ones"),
        (torch.ones(KEYS, KEYS).bool(), "is no causal language model"),
        (torch.zeros(KEYS, KEYS), "a mask of type torch.float32"),
    ],
)
def test_other_masks_are_refused(mask: Tensor, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_module, "create_causal_mask", lambda **_: mask[None, None])
    with pytest.raises(UserError, match=message):
        capture(tiny_model("llama"), ids())
