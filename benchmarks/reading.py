"""A random model that reads batches, with or without capture: the contenders of ``extraction.capture``.

The model computes in bfloat16 on a CUDA device if there is one, else in float32 on the CPU.
"""

from collections.abc import Iterator

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from extract.batches import Batch, read_batches
from extract.capture import Attention, probe
from extract.settings import ExtractionSettings

VOCABULARY = 1024


class Reading:
    """A random Llama with SDPA, and the batch that it reads repeatedly."""

    def __init__(
        self, *, layers: int, heads: int, kv_heads: int, head_dim: int, context: int, batch: int, rounds: int = 4
    ) -> None:
        torch.manual_seed(0)
        self.cuda = torch.cuda.is_available()
        self.model = make_model(
            layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim, context=context, cuda=self.cuda
        )
        tokens = np.random.default_rng(0).integers(0, VOCABULARY, (batch, context), np.int32)
        self.tokens = np.tile(tokens, (rounds, 1))
        self.batch = batch
        self.settings = ExtractionSettings.model_validate(
            {"model": "random", "corpus": "embedded", "context_length": context, "sequences": len(self.tokens)}
            | {"batch_size": batch}
        )
        self.attention: Attention = probe(self.model, torch.from_numpy(tokens[:1, :64]))

    def run_forward(self) -> None:
        """One forward pass of the base model."""
        run_forward(self.model, torch.from_numpy(self.tokens[: self.batch]))

    def read_batches(self) -> Iterator[Batch]:
        """Iterate over all batches as extraction reads them, lazily."""
        missing = range(len(self.tokens))
        return read_batches(self.model, self.attention, self.tokens, missing, self.settings, self.batch)

    def finish(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize()


def run_forward(model: PreTrainedModel, tokens: torch.Tensor) -> None:
    """One plain SDPA forward pass of the base model, until the device has ended it."""
    with torch.inference_mode():
        model.base_model(input_ids=tokens.to(model.device, torch.long), use_cache=False)
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


def make_model(*, layers: int, heads: int, kv_heads: int, head_dim: int, context: int, cuda: bool) -> PreTrainedModel:
    """A random Llama with SDPA, its MLP as wide as that of LLaMA-2."""
    width = heads * head_dim
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=width * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=context,
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    with torch.device("cuda" if cuda else "cpu"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype)
    model.eval()
    return model
