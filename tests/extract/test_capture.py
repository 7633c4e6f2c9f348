"""Captured weights and value states against eager attention and hooked projections, and what is refused."""

from collections import Counter
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
from extract.capture import capture, probe, query_weights
from extract.hub import quiet
from storage.errors import UserError
from tests.extract.tiny import VOCABULARY, WINDOW, tiny_config, tiny_model

KEYS = 48
QUERIES = (9, 20, 47)
"""The first is too early for a window of ``WINDOW`` keys to hide any from it, the last is the last position."""
FAMILIES = ("llama", "mistral", "gemma", "gemma2", "gpt2", "qwen2", "qwen3", "gpt_oss")

WEIGHT_TOLERANCE = 5e-6
"""Largest difference allowed to a softmax weight; eager sums the same float32 products in another order."""

VALUE_TOLERANCE = 1e-4
"""Largest difference allowed to a value state, of norm about 5; SDPA and eager drift apart layer by layer."""

CONTROLS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "scale": (FAMILIES, QUERIES),
    "gqa_order": (tuple(family for family in FAMILIES if family != "gpt2"), QUERIES),  # GPT-2: as many KV heads
    # Without the mask only the window is forgotten: SDPA is causal by itself.
    "mask": (("mistral", "gemma2", "qwen2", "qwen3", "gpt_oss"), QUERIES[1:]),
    "causal": (FAMILIES, QUERIES[:-1]),  # nothing comes after the last query
    "row": (FAMILIES, QUERIES),
    "softcap": (("gemma2",), QUERIES),
    "sink": (("gpt_oss",), QUERIES),
    "value_order": (FAMILIES, ()),
}
"""Deliberate mistakes, the families in which each can show, and the queries at which its weights do."""


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
    """By layer, from eager attention and hooks: weights of all queries (B, H, K, K), value states (B, Hkv, K, D)."""
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
    return list(attentions), values


def differences(model: PreTrainedModel) -> tuple[dict[int, float], list[float]]:
    """Largest difference of the weights, by query, and of the value states, by layer."""
    weights, values = eager(model, ids())
    captured = capture(model, ids(), QUERIES)
    assert len(weights) == len(values) == captured.weights.shape[2] == captured.values.shape[1] == 3
    assert captured.query_position.tolist() == list(QUERIES)
    rows = torch.stack([layer[:, :, QUERIES].transpose(1, 2) for layer in weights], dim=2)
    of_queries = (captured.weights - rows).abs().amax(dim=(0, 2, 3, 4))
    of_layers = (captured.values - torch.stack(values, dim=1)).abs().amax(dim=(0, 2, 3, 4))
    return dict(zip(QUERIES, of_queries.tolist(), strict=True)), of_layers.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_matches_eager_at_every_query_of_every_layer(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERY_BLOCK", 7)  # several blocks, the last one shorter
    model = unsaturated(family)
    weights, values = differences(model)
    assert max(weights.values()) < WEIGHT_TOLERANCE
    assert max(values) < VALUE_TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
def test_the_models_compared_are_unsaturated(family: str) -> None:
    for largest in capture(unsaturated(family), ids(), QUERIES).weights.amax(-1).unbind(1):
        assert largest.median() < 0.5
        assert (largest < 0.9).float().mean() > 0.9


def wrong_scale(correct: Callable[..., Tensor], *arguments: object) -> Tensor:
    query, key, mask, rows, scale, softcap, s_aux = arguments
    return correct(query, key, mask, rows, scale * 1.1, softcap, s_aux)


def wrong_gqa_order(correct: Callable[..., Tensor], query: Tensor, key: Tensor, *rest: object) -> Tensor:
    """Query head h reads KV head h % Hkv."""
    order = torch.arange(query.shape[1]).reshape(-1, key.shape[1]).T.flatten()
    *settings, s_aux = rest
    permuted = correct(query[:, order], key, *settings, None if s_aux is None else s_aux[order])
    weights = torch.empty_like(permuted)
    weights[:, order] = permuted
    return weights


def without_softcap(correct: Callable[..., Tensor], *arguments: object) -> Tensor:
    *before, _, s_aux = arguments
    return correct(*before, None, s_aux)


def without_sink(correct: Callable[..., Tensor], *arguments: object) -> Tensor:
    return correct(*arguments[:6], None)


def not_causal(
    correct: Callable[..., Tensor], query: Tensor, key: Tensor, mask: Tensor | None, *rest: object
) -> Tensor:
    """Every query sees the keys after itself."""
    later = torch.ones(KEYS, KEYS).triu(1).bool()
    return correct(query, key, torch.ones(1, 1, KEYS, KEYS).bool() if mask is None else mask | later, *rest)


def row_before(correct: Callable[..., Tensor], query: Tensor, *rest: object) -> Tensor:
    """The keys are those of the query, the vector is that of the position before."""
    return correct(query.roll(1, dims=2), *rest)


MISTAKES = {
    "scale": wrong_scale,
    "gqa_order": wrong_gqa_order,
    "softcap": without_softcap,
    "sink": without_sink,
    "causal": not_causal,
    "row": row_before,
}


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
        monkeypatch.setattr(module, "query_weights", partial(MISTAKES[control], query_weights))


@pytest.mark.parametrize(
    ("control", "family"), [(c, family) for c, (families, _) in CONTROLS.items() for family in families]
)
def test_the_comparison_sees_mistakes_at_every_query(
    control: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = unsaturated(family)
    make_mistake(control, monkeypatch)
    weights, values = differences(model)
    if control == "value_order":
        assert min(values) > 1000 * VALUE_TOLERANCE
    for query in CONTROLS[control][1]:
        assert weights[query] > 1000 * WEIGHT_TOLERANCE, query


@pytest.mark.parametrize(
    ("family", "windowed"),
    [
        ("llama", (False,) * 3),
        ("mistral", (True,) * 3),
        ("gemma2", (True, False, True)),
        ("qwen3", (False, True, True)),
    ],
)
def test_keys_outside_the_window_or_after_the_query_weigh_exactly_nothing(
    family: str, windowed: tuple[bool, ...]
) -> None:
    captured = capture(tiny_model(family), ids(), QUERIES)
    expected = [[max(0, query + 1 - WINDOW) if narrow else 0 for narrow in windowed] for query in QUERIES]
    assert captured.first_key.tolist() == expected
    assert [row[windowed.index(True)] for row in expected if any(windowed)] in ([], [0, 5, 32])
    for q, query in enumerate(QUERIES):
        for layer, first in enumerate(expected[q]):
            weights = captured.weights[:, q, layer]
            assert (weights[..., :first] == 0).all()
            assert (weights[..., first : query + 1] > 0).all()
            assert (weights[..., query + 1 :] == 0).all()


def test_a_chunk_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunked attention, as in Llama 4: a query sees its own chunk only, of which it may be the first."""
    chunk = torch.arange(KEYS) // 16
    mask = torch.ones(KEYS, KEYS).tril().bool() & (chunk == chunk[:, None])
    monkeypatch.setattr(llama_module, "create_causal_mask", lambda **_: mask[None, None])
    captured = capture(tiny_model("llama"), ids(), (15, 16, 30))
    assert captured.first_key.tolist() == [[0] * 3, [16] * 3, [16] * 3]
    assert (captured.weights[:, 1, ..., 16] == 1).all()


def test_rows_sum_to_one_and_leave_out_the_learned_sink() -> None:
    assert capture(tiny_model("qwen2"), ids(), QUERIES).weights.sum(-1) == pytest.approx(1, abs=1e-6)
    for sums in capture(unsaturated("gpt_oss"), ids(), QUERIES).weights.sum(-1).unbind(1):
        assert sums.max() < 1
        assert sums.min() < 0.9


@pytest.mark.parametrize("family", FAMILIES)
def test_a_query_is_bit_identical_alone_and_with_others(family: str) -> None:
    model = unsaturated(family)
    together = capture(model, ids(), QUERIES)
    for q, query in enumerate(QUERIES):
        alone = capture(model, ids(), (query,))
        assert torch.equal(together.weights[:, q], alone.weights[:, 0])
        assert torch.equal(together.first_key[q], alone.first_key[0])
        assert torch.equal(together.values, alone.values)


@pytest.mark.parametrize("family", FAMILIES)
def test_any_number_of_queries_takes_one_forward_pass(family: str) -> None:
    model = unsaturated(family)
    calls: Counter[str] = Counter()
    for name, part in model.named_modules():
        part.register_forward_pre_hook(lambda *_, name=name: calls.update([name]))
    counted = []
    for queries in ((KEYS - 1,), QUERIES, tuple(range(KEYS))):
        calls.clear()
        capture(model, ids(), queries)
        counted.append(dict(calls))
    assert counted[0] == counted[1] == counted[2]
    assert counted[0][model.base_model_prefix] == 1
    assert "lm_head" not in counted[0]


@pytest.mark.parametrize("queries", [(), (-1,), (KEYS,), (3, KEYS)])
def test_positions_that_the_sequence_does_not_have(queries: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=f"queries must be some positions from 0 to {KEYS - 1}"):
        capture(tiny_model("llama"), ids(), queries)


def test_a_mask_of_padding_leaves_the_other_keys_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(1, 4, 9, 8, generator=generator), torch.randn(1, 2, 9, 8, generator=generator)
    mask = (torch.ones(9, 9).tril().bool() & (torch.arange(9) >= 3))[None, None]
    rows = torch.tensor([5, 8])
    padded = query_weights(query, key, mask, rows, 0.5, None, None)
    bare = query_weights(query[:, :, 3:], key[:, :, 3:], None, rows - 3, 0.5, None, None)
    assert (padded[..., :3] == 0).all()
    torch.testing.assert_close(padded[..., 3:], bare)
    dropped = query_weights(query, key, None, rows, 0.5, None, None)
    assert ((dropped[..., 3:] - bare).abs().amax(dim=(0, 1, 3)) > 0.05).all()


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
        here, there = capture(model, ids(), (KEYS // 2 - 1, KEYS - 1)), probe(model.to("cuda"), ids())
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
        capture(model, ids(1, keys), (63, 255, 511, 1023))
    assert 0 < largest.elements <= 3 * keys * 64  # the captured values of 3 layers; one head's matrix is 1024 * 1024


def test_captured_tensors_own_exactly_their_memory() -> None:
    captured = capture(tiny_model("llama"), ids(), QUERIES)
    for tensor in (captured.weights, captured.values, captured.first_key, captured.query_position):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * 4


@pytest.mark.parametrize("before", ["sdpa", "eager"])
def test_the_models_own_attention_is_restored(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    model.set_attn_implementation(before)
    capture(model, ids(), QUERIES)
    assert model.config._attn_implementation == before
    monkeypatch.setattr(module, "query_weights", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        capture(model, ids(), QUERIES)
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


def biased(*, last: bool) -> PreTrainedModel:
    """One layer adds to its logits, at the last query or at all others."""
    model = tiny_model("llama")
    attention = model.model.layers[2].self_attn
    rows = (torch.arange(KEYS) == KEYS - 1) == last
    bias = (torch.arange(float(KEYS)) * rows[:, None]).expand(1, 4, KEYS, KEYS)
    attention.forward = partial(attention.forward, position_bias=bias)
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (bert, "BertLMHeadModel is no causal language model"),
        (gptj, "GPTJForCausalLM does not compute its attention through transformers' AttentionInterface"),
        (half_convolutions, "no softmax attention to capture in layers 0, 2 of 3"),
        (uneven_heads, r"layers of different sizes: the value states of layer 1 are \(4, 48, 16\), .* \(2, 48, 16\)"),
        (partial(numbered, 0), "more than once in layer 0"),
        (partial(numbered, None), "outside its 3 numbered layers"),
        (partial(numbered, 3), "outside its 3 numbered layers"),
        (partial(biased, last=True), "attends in layer 2 in a way this program does not know"),
        (partial(biased, last=False), "attends in layer 2 in a way this program does not know"),
    ],
)
def test_models_that_cannot_be_captured_are_refused_by_name(make: Callable[[], PreTrainedModel], message: str) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        probe(make().eval(), ids())
    assert "\n" not in str(refusal.value)


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
        (changed(20, 20, seen=False), f"{OTHERS_HIDDEN}20;"),
        (changed(20, 0, slice(1, 2), seen=False), f"{OTHERS_HIDDEN}20;"),
        (CAUSAL & (torch.arange(KEYS)[:, None] != 20), f"{OTHERS_HIDDEN}20;"),
        (changed(9, 10, slice(1, 2), seen=True), "is no causal language model"),
        (torch.ones(1, 1, KEYS, KEYS).bool(), "is no causal language model"),
        (torch.zeros(1, 1, KEYS, KEYS), "a mask of type torch.float32"),
    ],
)
def test_other_masks_are_refused(mask: Tensor, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_module, "create_causal_mask", lambda **_: mask)
    with pytest.raises(UserError, match=message):
        capture(tiny_model("llama"), ids(), QUERIES)


def test_masks_that_change_other_queries_are_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_module, "create_causal_mask", lambda **_: changed(21, 5, seen=False))
    assert capture(tiny_model("llama"), ids(), QUERIES).first_key.tolist() == [[0] * 3] * 3
