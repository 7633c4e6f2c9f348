"""The families of models that capture is tested on: small random models of each, and how far it is from eager on them.

``python -m tests.extract.families`` writes the tables of docs/models.md.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import pytest
import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from extract.capture.one_pass import Attention, capture, probe
from extract.hub import silence_libraries
from tests.extract.tiny import GROUPED, PLAIN, VOCABULARY, WINDOW

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
KEYS = 48
PROJECTIONS = {"o_proj", "out_proj", "c_proj", "dense", "Wo"}
"""Names of the output projections of attention."""
QUERIES = (9, 20, 47)
"""The first is too early for a window of ``WINDOW`` keys to hide any from it, the last is the last position."""

Sizes = Mapping[str, object]
_KV: Sizes = {**PLAIN, "num_key_value_heads": 2}
_WINDOW: Sizes = {"sliding_window": WINDOW}
_WINDOWED: Sizes = {**GROUPED, **_WINDOW}
_FOUR: Sizes = {"num_hidden_layers": 4}
_MIXED: Sizes = {**_WINDOWED, **_FOUR, "layer_types": ["sliding_attention", "full_attention"] * 2}
_SOMETIMES: Sizes = {**_WINDOWED, "use_sliding_window": True, "max_window_layers": 1}
_EXPERTS: Sizes = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "n_routed_experts": 4} | {
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
_HALF: Sizes = {**_FOUR, "layer_types": ["linear_attention", "full_attention"] * 2}
_LATENT: Sizes = {**PLAIN, **_EXPERTS, "num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": 24} | {
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "n_group": 2, "topk_group": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip
_MAMBA: Sizes = {**_KV, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 1, "mamba_d_state": 16}
_OLD: Sizes = {"vocab_size": VOCABULARY, "initializer_range": 0.15, "bos_token_id": 0, "eos_token_id": 1}
_GPTJ: Sizes = {**_OLD, "n_embd": 64, "n_layer": 3, "n_head": 4, "rotary_dim": 8, "n_positions": 64}
_FALCON: Sizes = {**PLAIN, "alibi": False, "multi_query": False}
_FALCON_GROUPED: Sizes = {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}
_BY_LAYER: Sizes = {"vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 16}
_LLAMA_4: Sizes = {**GROUPED, **_FOUR, "num_local_experts": 2, "attention_chunk_size": WINDOW} | {
    "intermediate_size_mlp": 64
}
_GEMMA_2: Sizes = {**_WINDOWED, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 16}
_GEMMA_3N: Sizes = {**_MIXED, **_BY_LAYER, "num_kv_shared_layers": 2, "laurel_rank": 8, "altup_num_inputs": 2} | {
    "activation_sparsity_pattern": None
}
_GEMMA_4: Sizes = {**_MIXED, **_BY_LAYER, "num_kv_shared_layers": 0, "global_head_dim": 32}
_GEMMA_4_SHARED: Sizes = {**_GEMMA_4, "num_kv_shared_layers": 2}
_GPT_OSS: Sizes = {**_WINDOWED, "num_local_experts": 4}
_LFM_2: Sizes = {**GROUPED, **_FOUR, "layer_types": ["conv", "full_attention"] * 2}
_NEMOTRON_H: Sizes = {**GROUPED, "hybrid_override_pattern": "M*-*", "mamba_num_heads": 4, "mamba_head_dim": 32} | {
    "n_groups": 1,
    "ssm_state_size": 16,
}
_RECURRENT_GEMMA: Sizes = {**PLAIN, **_FOUR, "num_key_value_heads": 1, "lru_width": 64} | {
    "attention_window_size": WINDOW,
    "block_types": ["recurrent", "attention"],
}
_LINEAR: Sizes = {**GROUPED, **_HALF, "linear_num_key_heads": 2, "linear_num_value_heads": 4} | {
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_MIMO: Sizes = {**_WINDOWED, **_EXPERTS, "v_head_dim": 16, "swa_num_key_value_heads": 4} | {
    "swa_v_head_dim": 16, "swa_head_dim": 16, "swa_num_attention_heads": 4,
}  # fmt: skip
_NEO: Sizes = {**_OLD, "hidden_size": 64, "num_layers": 4, "num_heads": 4, "intermediate_size": 64} | {
    "window_size": WINDOW, "max_position_embeddings": 64, "attention_types": [[["global", "local"], 2]],
    "initializer_range": 0.08,
}  # fmt: skip
_XGLM: Sizes = {"vocab_size": VOCABULARY, "d_model": 64, "num_layers": 3, "attention_heads": 4, "ffn_dim": 64} | {
    "max_position_embeddings": 64,
    "init_std": 0.15,
}
_INDEXER: Sizes = {**_LATENT, "index_n_heads": 2, "index_head_dim": 16}


@dataclass(frozen=True)
class Family:
    """A family of models, as one small random model of it stands for it."""

    name: str
    config: str
    """Name of the configuration's class."""
    settings: Sizes
    special: str = ""
    """What is particular about its attention."""
    values: Literal["output", "projection"] = "output"
    """What value states are compared with: eager's attention outputs, as weighted sums, or eager's projection."""
    sinks_apart: bool = False
    """Whether eager leaves the learned sinks, which scale its outputs, out of the weights that it returns."""
    alone: bool = False
    """Whether it is read in two passes."""
    damping: float = 1.0
    """Factor on the norms of its queries, so that no key takes all the weight."""


_SLIDING = "sliding window"
_SOME = "sliding window in some layers"
_MLA = "latent attention (MLA)"
_OTHERS = "linear attention in the other layers"
_MAMBAS = "Mamba in the other layers"
_SHARED = "layers that share KV heads of earlier ones"
_TWO_SIZES = f"{_SOME}, heads of two sizes"
_CONVOLUTIONS = "convolutions in the other layers"
_RECURRENCE = "recurrence in the other layers"
_ONCE = "as many value states in the cache as heads, kept once per KV head"
_SCALED: Sizes = {"attention_multiplier": 0.25}
_GRANITE_MOE_SWA: Sizes = {**_MIXED, **_EXPERTS, **_SCALED}
_GRANITE_4: Sizes = {**_MAMBA, **_HALF, **_SCALED, "num_local_experts": 2, "shared_intermediate_size": 32}
_KIMI_LINEAR: Sizes = {**_LATENT, **_HALF, "linear_num_heads": 4, "linear_head_dim": 16}
_LFM_3: Sizes = {**_WINDOWED, **_FOUR, "layer_types": ["conv", "full_attention", "conv", "sliding_attention"]}
_JAMBA: Sizes = {**_KV, **_FOUR, "num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1} | {
    "mamba_d_state": 8,
    "mamba_dt_rank": 4,
    "use_mamba_kernels": False,
}
FAMILIES: tuple[Family, ...] = (
    Family("Llama 2, Llama 3", "LlamaConfig", GROUPED),
    Family("Llama 4", "Llama4TextConfig", _LLAMA_4, "a query sees its chunk only, in some layers"),
    Family("Mistral", "MistralConfig", _WINDOWED, _SLIDING),
    Family("Mixtral", "MixtralConfig", {**_WINDOWED, **_EXPERTS}, _SLIDING),
    Family("Gemma", "GemmaConfig", GROUPED),
    Family("Gemma 2", "Gemma2Config", _GEMMA_2, f"{_SOME}, soft-capped logits"),
    Family("Gemma 3", "Gemma3TextConfig", {**_MIXED, "query_pre_attn_scalar": 16}, _SOME),
    Family("Gemma 3n", "Gemma3nTextConfig", _GEMMA_3N, f"{_SOME}, {_SHARED}", damping=0.3),
    Family("Gemma 4", "Gemma4TextConfig", _GEMMA_4, _TWO_SIZES, damping=0.3),
    Family("Gemma 4, shared", "Gemma4TextConfig", _GEMMA_4_SHARED, f"{_TWO_SIZES}, {_SHARED}", damping=0.3),
    Family("GPT-2", "GPT2Config", PLAIN),
    Family("GPT-NeoX, Pythia", "GPTNeoXConfig", PLAIN),
    Family("GPT-BigCode, StarCoder", "GPTBigCodeConfig", PLAIN, "one KV head"),
    Family("OPT", "OPTConfig", {**PLAIN, "ffn_dim": 64, "word_embed_proj_dim": 64, "init_std": 0.15}),
    Family("Phi", "PhiConfig", _KV),
    Family("Phi-3", "Phi3Config", {**_KV, **_WINDOW}, _SLIDING),
    Family("Qwen 2", "Qwen2Config", _SOMETIMES, _SOME),
    Family("Qwen 3", "Qwen3Config", _SOMETIMES, _SOME),
    Family("Qwen 2 MoE", "Qwen2MoeConfig", {**GROUPED, **_EXPERTS}),
    Family("Qwen 3 MoE", "Qwen3MoeConfig", {**GROUPED, **_EXPERTS}),
    Family("OLMo", "OlmoConfig", GROUPED),
    Family("OLMo 2", "Olmo2Config", GROUPED),
    Family("OLMo 3", "Olmo3Config", _WINDOWED, _SLIDING),
    Family("OLMoE", "OlmoeConfig", {**GROUPED, **_EXPERTS}),
    Family("StableLM", "StableLmConfig", _KV),
    Family("StarCoder 2", "Starcoder2Config", {**_KV, **_WINDOW}, _SLIDING),
    Family("Granite", "GraniteConfig", {**GROUPED, **_SCALED}),
    Family("Granite MoE", "GraniteMoeConfig", {**GROUPED, **_EXPERTS, **_SCALED}),
    Family("Granite SWA", "GraniteSWAConfig", {**_MIXED, **_SCALED}, f"{_SOME}, learned sinks", sinks_apart=True),
    Family("Granite MoE SWA", "GraniteMoeSWAConfig", _GRANITE_MOE_SWA, f"{_SOME}, learned sinks", sinks_apart=True),
    Family("SmolLM3", "SmolLM3Config", GROUPED),
    Family("gpt-oss", "GptOssConfig", _GPT_OSS, f"{_SOME}, learned sinks: rows sum to less than 1"),
    Family("DeepSeek-V2", "DeepseekV2Config", _LATENT, _MLA),
    Family("DeepSeek-V3", "DeepseekV3Config", _LATENT, _MLA),
    Family("DeepSeek-V3.2", "DeepseekV32Config", _INDEXER, f"{_MLA}; contexts as long as its indexer keeps whole"),
    Family("Cohere", "CohereConfig", GROUPED),
    Family("Cohere 2", "Cohere2Config", _WINDOWED, _SLIDING),
    Family("Ernie 4.5", "Ernie4_5Config", GROUPED),
    Family("Exaone 4", "Exaone4Config", _WINDOWED, _SLIDING),
    Family("GLM", "GlmConfig", GROUPED),
    Family("GLM 4", "Glm4Config", GROUPED),
    Family("GLM 4 MoE", "Glm4MoeConfig", {**GROUPED, **_EXPERTS}),
    Family("HunYuan", "HunYuanDenseV1Config", GROUPED),
    Family("MiMo V2 Flash", "MiMoV2FlashConfig", _MIMO, f"{_SOME}, learned sinks in those, KV heads of two numbers"),
    Family("ModernBERT decoder", "ModernBertDecoderConfig", {**PLAIN, **_FOUR, "local_attention": 2 * WINDOW}, _SOME),
    Family("Nemotron", "NemotronConfig", {**GROUPED, "initializer_range": 0.07}),
    Family("Persimmon", "PersimmonConfig", PLAIN),
    Family("Seed-OSS", "SeedOssConfig", GROUPED),
    Family("Qwen 3 Next", "Qwen3NextConfig", {**_LINEAR, **_EXPERTS}, _OTHERS, "projection"),
    Family("Qwen 3.5", "Qwen3_5TextConfig", _LINEAR, _OTHERS, "projection"),
    Family("Kimi Linear", "KimiLinearConfig", _KIMI_LINEAR, f"{_OTHERS}, {_MLA}"),
    Family("LFM 2", "Lfm2Config", _LFM_2, _CONVOLUTIONS),
    Family("LFM 3", "Lfm3Config", _LFM_3, f"{_CONVOLUTIONS}, {_SOME}", "projection"),
    Family("Jamba", "JambaConfig", _JAMBA, _MAMBAS),
    Family("Bamba", "BambaConfig", {**_MAMBA, **_FOUR, "attn_layer_indices": [1, 3]}, _MAMBAS),
    Family("Falcon H1", "FalconH1Config", {**_MAMBA, "mamba_d_ssm": 128}, "Mamba beside the attention of each layer"),
    Family("Granite 4", "GraniteMoeHybridConfig", _GRANITE_4, _MAMBAS),
    Family("Nemotron H", "NemotronHConfig", _NEMOTRON_H, "Mamba or a plain MLP in the other layers"),
    Family("RecurrentGemma", "RecurrentGemmaConfig", _RECURRENT_GEMMA, f"{_RECURRENCE}, one KV head, {_SLIDING}"),
    Family("MiniMax", "MiniMaxConfig", {**GROUPED, **_HALF, "num_local_experts": 2, "block_size": 16}, _OTHERS),
    Family("OLMo Hybrid", "OlmoHybridConfig", {**GROUPED, **_HALF}, _OTHERS),
    Family("GPT-J", "GPTJConfig", _GPTJ, alone=True),
    Family("CodeGen", "CodeGenConfig", _GPTJ, alone=True),
    Family("Falcon, one KV head", "FalconConfig", {**_FALCON, "multi_query": True}, "one KV head", alone=True),
    Family("Falcon, all KV heads", "FalconConfig", {**_FALCON, "parallel_attn": False}, alone=True),
    Family("Falcon, grouped", "FalconConfig", _FALCON_GROUPED, _ONCE, alone=True),
    Family("BLOOM", "BloomConfig", {**_OLD, "hidden_size": 64, "n_layer": 3, "n_head": 4}, alone=True),
    Family("MPT", "MptConfig", {**_OLD, "d_model": 64, "n_layers": 3, "n_heads": 4, "max_seq_len": 64}, alone=True),
    Family("GPT-Neo", "GPTNeoConfig", _NEO, _SOME, alone=True),
    Family("XGLM", "XGLMConfig", _XGLM, alone=True),
)
"""Every family that is tested, in the order of the page."""


DISTINCT = {
    *("Llama 2, Llama 3", "Llama 4", "Mistral", "Gemma 2", "Gemma 3n", "Gemma 4", "GPT-2", "OPT", "gpt-oss"),
    *("DeepSeek-V3", "MiMo V2 Flash", "Qwen 3 Next", "LFM 2", "Falcon H1", "GPT-J", "Falcon, grouped", "GPT-Neo"),
}
"""Families that differ in masks, shapes, sinks, shared or missing layers or in how they are read; the others repeat."""


def _each(families: Collection[Family], others: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Run a test for each of some families, and for those that repeat others only among the ``others``."""
    return pytest.mark.parametrize(
        "family",
        [pytest.param(family, marks=() if family.name in DISTINCT else others) for family in families],
        ids=lambda family: family.name.replace(" ", ""),
    )


every_family = _each(FAMILIES, pytest.mark.slow)
every_kind = _each(FAMILIES, pytest.mark.long)
every_kind_through_the_interface = _each([family for family in FAMILIES if not family.alone], pytest.mark.long)


def find_family(name: str) -> Family:
    """The family with a name."""
    return next(family for family in FAMILIES if family.name == name)


@dataclass(frozen=True)
class Refused:
    """A family of models that is refused, as one small random model of it stands for it."""

    name: str
    config: str
    """Name of the configuration's class."""
    settings: Sizes
    why: str
    """What is in the way, for the page."""
    message: str
    """A part of what the refusal says."""


_BARE: Sizes = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2}
_SMALL: Sizes = {**_BARE, "num_attention_heads": 4}
_WITH_MLP: Sizes = {**_SMALL, "intermediate_size": 64}
_BERT: Sizes = {**_WITH_MLP, "max_position_embeddings": 64}
_GPT_1: Sizes = {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 4}
_HYBRID: Sizes = {"layers_block_type": ["linear_attention", "hybrid"], "mamba_d_state": 16, "n_mamba_heads": 4}
_ZAMBA_2: Sizes = {**_SMALL, **_HYBRID}
_DECODER: Sizes = {"d_model": 64, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}
_HALVES: Mapping[str, Sizes] = {
    "Bart": _DECODER,
    "Whisper": {**_DECODER, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 1},
    "ProphetNet": {"hidden_size": 64, "num_decoder_layers": 2, "num_decoder_attention_heads": 4},
}
"""Encoder–decoders, by the names of their classes."""
_RECURRENT = ("no softmax attention", "has no softmax attention that can be read")
_NOT_CAUSAL = "BertLMHeadModel is not a causal language model"
_NO_CACHE = "keeps no cache of keys and values"
_OWN_PROMPT = "reads a prompt of its own before every text, also after a cache"
_UNKNOWN = "in a way this program does not know"
_OUTSIDE = "outside its 2 numbered layers"
_TWICE = "more than once in layer 0"
REFUSED: tuple[Refused, ...] = (
    Refused("BERT and other encoders", "BertConfig", _BERT, "tokens attend to later ones", _NOT_CAUSAL),
    Refused("Mamba", "MambaConfig", _BARE, *_RECURRENT),
    Refused("Falcon Mamba", "FalconMambaConfig", _BARE, *_RECURRENT),
    Refused("RWKV", "RwkvConfig", _BARE, *_RECURRENT),
    Refused("xLSTM", "xLSTMConfig", {**_BARE, "num_blocks": 2, "num_heads": 4}, *_RECURRENT),
    Refused("GPT-1", "OpenAIGPTConfig", _GPT_1, _NO_CACHE, _NO_CACHE),
    *(
        Refused(
            f"{name} and its decoder alone",
            f"{name}Config",
            {"vocab_size": VOCABULARY, "is_encoder_decoder": False, "is_decoder": True, **sizes},
            "attends to the states of an encoder, which a text does not give",
            "is an encoder–decoder or its decoder alone",
        )
        for name, sizes in _HALVES.items()
    ),
    Refused("CPM-Ant", "CpmAntConfig", {**_SMALL, "dim_head": 16}, _OWN_PROMPT, _UNKNOWN),
    Refused(
        "Falcon with ALiBi: `tiiuae/falcon-rw-1b`, `tiiuae/falcon-rw-7b`",
        "FalconConfig",
        {**_SMALL, "alibi": True, "initializer_range": 0.15},
        "its eager attention, which alone returns weights, differs from its usual one",
        "computes different hidden states with eager attention",
    ),
    Refused("DiffLlama", "DiffLlamaConfig", _WITH_MLP, "subtracts one softmax from another", _TWICE),
    Refused("HRM", "HrmTextConfig", GROUPED, "goes through its layers several times", _TWICE),
    Refused("Zamba 2", "Zamba2Config", _ZAMBA_2, "layers share one attention, which has no number", _OUTSIDE),
    Refused(
        "Doge", "DogeConfig", _SMALL, "a mask that is computed from the value states", "a mask of type torch.float"
    ),
    Refused("Inkling", "InklingTextConfig", {**GROUPED, **_EXPERTS}, "adds a bias to its logits", _UNKNOWN),
    Refused(
        "DeepSeek-V3.2 with more than `index_topk` tokens",
        "DeepseekV32Config",
        {**_INDEXER, "index_topk": WINDOW},
        "an indexer chooses the keys of each query",
        f"set context_length to {WINDOW} or less",
    ),
)
"""Families that are seen to be refused, in the order of the page."""


@dataclass(frozen=True)
class Plain:
    """What eager attention makes of ``ids()``, by layer with attention."""

    weights: dict[int, Tensor]
    """Of all queries, (B, H, K, K)."""
    values: dict[int, Tensor]
    """Value states (B, Hkv, K, D), or the outputs of attention, (B, H, K, D)."""


@dataclass(frozen=True)
class Measured:
    """Largest differences between what is captured and eager."""

    weights: dict[int, float]
    """By query."""
    values: list[float]
    """By layer with attention."""
    sinks: float
    """Of the mass that eager's weights lack."""
    first_keys: bool
    """Whether the first keys are those to which eager gives weight, and no key that is not seen has any."""


def ids(batch: int = 2, keys: int = KEYS) -> Tensor:
    """Token ids (B, K)."""
    return torch.randint(2, VOCABULARY, (batch, keys), generator=torch.Generator().manual_seed(1))


def sequence() -> Tensor:
    """Token ids of one text (K,)."""
    return ids(1)[0]


def made(family: Family | Refused) -> PreTrainedModel:
    """A seeded random model of a family."""
    torch.manual_seed(0)
    with silence_libraries():
        return AutoModelForCausalLM.from_config(getattr(transformers, family.config)(**family.settings)).eval()


@cache
def model_of(family_name: str) -> PreTrainedModel:
    """A seeded random model of a family, whose learned sinks matter if it has any."""
    family = find_family(family_name)
    model = made(family)
    for name, parameter in model.named_parameters():
        if name.endswith(("sinks", "attention_sink_bias")):
            torch.nn.init.normal_(parameter, mean=2.0)
        if name.endswith("q_norm.weight"):
            parameter.data *= family.damping
    return model


@cache
def attention_of(family_name: str) -> Attention:
    """How the model of a family is read."""
    with silence_libraries():
        return probe(model_of(family_name), ids(1))


@contextmanager
def _eager(model: PreTrainedModel) -> Iterator[None]:
    """Within it the model computes attention eagerly, whether or not it can be told so."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    model.config._attn_implementation = "eager"
    try:
        yield
    finally:
        model.set_attn_implementation(before)
        model.config._attn_implementation = before


@cache
def plain_of(family_name: str) -> Plain:
    """What the eager attention of a family's model makes of ``ids()``."""
    family, model, attention = find_family(family_name), model_of(family_name), attention_of(family_name)
    layers = [layer for layer, size in enumerate(attention.layers) if size.heads]
    outputs: dict[int, Tensor] = {}
    values: dict[int, Tensor] = {}
    hooks = [
        projection.register_forward_pre_hook(lambda _, given, layer=layer: outputs.update({layer: given[0]}))
        for layer, projection in _projections(model, layers, PROJECTIONS)
    ] + [
        projection.register_forward_hook(lambda *given, layer=layer: values.update({layer: given[-1]}))
        for layer, projection in _projections(model, layers, {"v_proj"})
    ]
    with silence_libraries(), _eager(model), torch.inference_mode():
        weights = model(input_ids=ids(), output_attentions=True, use_cache=False).attentions
    for hook in hooks:
        hook.remove()
    if len(weights) == len(attention.layers):
        weights = [weights[layer] for layer in layers]
    by_layer = dict(zip(layers, weights, strict=True))
    outputs = {layer: _by_head(outputs[layer], by_layer[layer].shape[1]) for layer in layers}
    values = {layer: _by_head(values[layer], attention.layers[layer].kv_heads) for layer in layers if layer in values}
    if family.sinks_apart:
        by_layer = {layer: _with_sinks(by_layer[layer], values[layer], outputs[layer]) for layer in layers}
    return Plain(by_layer, values if family.values == "projection" else outputs)


def _with_sinks(weights: Tensor, values: Tensor, outputs: Tensor) -> Tensor:
    """Weights (B, H, K, K) scaled so that, times value states (B, Hkv, K, D), they make the outputs (B, H, K, D)."""
    sums = weights @ values.repeat_interleave(weights.shape[1] // values.shape[1], dim=1)
    return weights * ((sums * outputs).sum(-1, keepdim=True) / sums.square().sum(-1, keepdim=True))


def _projections(
    model: PreTrainedModel, layers: Sequence[int], names: Collection[str]
) -> Iterator[tuple[int, torch.nn.Module]]:
    """The projections with some names of the attention in each of some layers.

    What goes into that of outputs is weights times value states.
    """
    for module in model.modules():
        layer = getattr(module, "layer_idx", getattr(module, "layer_id", None))
        if "Attention" in type(module).__name__ and layer in layers:
            for name, child in module.named_children():
                if name in names:
                    yield layer, child


def _by_head(outputs: Tensor, heads: int) -> Tensor:
    """Outputs of attention, or of a projection, (B, K, H * D) or (B, K, H, D) as (B, H, K, D)."""
    return outputs.flatten(2).unflatten(-1, (heads, -1)).transpose(1, 2)


def measure(family: Family) -> Measured:
    """Capture ``QUERIES`` of ``ids()`` and compare with eager, query by query and layer by layer."""
    model, attention, expected = model_of(family.name), attention_of(family.name), plain_of(family.name)
    with silence_libraries():
        captured = capture(model, attention, ids(), QUERIES)
    of_queries, of_values, of_sinks, same_first = dict.fromkeys(QUERIES, 0.0), [], 0.0, True
    for layer, eager in expected.weights.items():
        size = attention.layers[layer]
        rows = eager[:, :, QUERIES].transpose(1, 2)  # (B, Q, H, K)
        difference = (captured["attention"][layer, :, :, : size.heads] - rows).abs().amax(dim=(0, 2, 3))
        of_queries = {q: max(of_queries[q], float(d)) for q, d in zip(QUERIES, difference, strict=True)}
        lacking = 1 - rows.sum(-1)
        of_sinks = max(of_sinks, float((captured["learned_sink"][layer, :, :, : size.heads] - lacking).abs().max()))
        first = captured.first_key[:, layer]
        same_first &= bool(((rows > 0).any(dim=2).any(dim=0).int().argmax(-1) == first).all())
        seen = (torch.arange(KEYS) >= first[:, None]) & (torch.arange(KEYS) <= torch.tensor(QUERIES)[:, None])
        same_first &= not captured["attention"][layer].masked_fill(seen[:, None], 0)[:, :, : size.heads].any()
        values = captured["values"][layer, :, : size.kv_heads, :, : size.head_dim]
        if family.values == "output":
            values = eager @ values.repeat_interleave(size.heads // size.kv_heads, dim=1)
        largest = expected.values[layer].abs().max()
        of_values.append(float((values - expected.values[layer]).abs().max() / largest))
    return Measured(of_queries, of_values, of_sinks, same_first)


def bound(family: Family) -> float:
    """Largest difference of float32 attention from eager on any processor, of weights and, relatively, of value states.

    To first order, the sums of one layer, of W products at most, differ by W units of the last place (2⁻²³, a rounding
    in each of two orders of summation) between two ways of computing them, and layers add up. Real errors, of both
    signs, are far smaller, and softmax weights below 1 change by less than their logits.
    """
    model = model_of(family.name)
    longest = max(KEYS, *(weight.shape[-1] for weight in model.parameters() if weight.ndim > 1))
    return len(attention_of(family.name).layers) * longest * torch.finfo(torch.float32).eps


@cache
def bound_logits(family_name: str) -> float:
    """Largest difference of float32 logits on any processor: that of ``bound``, of the largest logit of ``ids()``."""
    with silence_libraries(), torch.inference_mode():
        logits = model_of(family_name)(input_ids=ids(), use_cache=False).logits
    return bound(find_family(family_name)) * float(logits.abs().max())


def row(family: Family) -> str:
    """The line of a family in the page's table."""
    attention = attention_of(family.name)
    attending = sum(size.heads > 0 for size in attention.layers)
    cells = (
        family.name,
        f"`{type(model_of(family.name)).__name__}`",
        attention.path,
        "all" if attending == len(attention.layers) else f"{attending} of {len(attention.layers)}",
        family.special,
        f"{bound(family):.1e}",
    )
    return "| " + " | ".join(cells) + " |"


def write_tables(page: str) -> str:
    """The page with the lines of all families in its two tables, of those that are refused and of those tested."""
    refused = [f"| {family.name} | {family.why} |" for family in REFUSED]
    tables = iter(["".join(f"{line}\n" for line in rows) for rows in (refused, map(row, FAMILIES))])
    return re.sub(r"(?<=\|---\|\n)((?:\| .*\n)+)", lambda _: next(tables), page)


if __name__ == "__main__":
    PAGE.write_text(write_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
