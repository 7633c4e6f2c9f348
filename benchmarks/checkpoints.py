"""Checkpoints with random weights and the embedded model's tokenizer, for models that cannot be downloaded.

Holds ``write_checkpoint``, and the configuration of a small trained model.
"""

import math
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedModel

from extract import models
from extract.settings import EMBEDDED, ExtractionSettings

VOCABULARY = 4096
"""Smallest vocabulary of a model, that of the embedded model's tokenizer."""

SMOLLM2 = {
    "vocab_size": VOCABULARY, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rope_theta": 1e5,
    "tie_word_embeddings": True,
}  # fmt: skip
"""SmolLM2-135M, as in its ``config.json`` on the hub, but for the vocabulary."""

SINK_LOGITS = (8.0, 12.0)
"""Range over the heads of the logit of key 0; the other 1023 keys together have one of about 9."""


def write_checkpoint(config: PreTrainedConfig, folder: Path, *, dtype: torch.dtype, sink: bool = False) -> None:
    """Save a model with random weights and the embedded model's tokenizer.

    With ``sink``, which needs a LLaMA with biases, every head gives a large part of its weight to BOS.
    """
    shipped = ExtractionSettings.model_validate(
        {"model": EMBEDDED, "corpus": EMBEDDED, "context_length": 2, "sequences": 1}
    )
    tokenizer = models.describe(shipped).tokenizer
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    if sink:
        _put_sink(model, tokenizer.bos_token_id)
    model.save_pretrained(folder)


def make_llama(**settings: Any) -> LlamaConfig:
    """The configuration of a LLaMA in which a sink can be put."""
    return LlamaConfig(**settings, attention_bias=True)


@torch.no_grad()
def _put_sink(model: PreTrainedModel, bos: int) -> None:
    """Give BOS the first component of the residual stream for itself, which all queries look for.

    The queries' bias lies in the component of a head that rotary embeddings turn least; logits spread as in
    ``benchmarks.heads``, and the value state of the sink is short.
    """
    base: Any = model.base_model
    config, embeddings = base.config, base.embed_tokens.weight
    embeddings[:, 0] = 0
    embeddings[bos] = 0
    embeddings[bos, 0] = 100.0  # after normalisation √hidden_size, and next to nothing in the other components
    still, size = config.head_dim // 2 - 1, config.hidden_size**0.5
    for layer in base.layers:
        attention = layer.self_attn
        for output in (attention.o_proj, layer.mlp.down_proj):
            output.weight[0] = 0
        for projection in (attention.q_proj, attention.k_proj):
            projection.weight *= 3.0
        attention.k_proj.weight[still :: config.head_dim, 0] = 1.0
        wanted = torch.empty(config.num_attention_heads).uniform_(*SINK_LOGITS)
        attention.q_proj.bias[still :: config.head_dim] = wanted * math.sqrt(config.head_dim) / size
        attention.v_proj.weight[:, 0] *= 0.1
