"""Checkpoints with random weights and the embedded model's tokenizer, for models that cannot be downloaded."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from extract.models import loading as models
from extract.settings import EMBEDDED, ExtractionSettings

VOCABULARY = 4096
"""Smallest vocabulary of a model, that of the embedded model's tokenizer."""


def write_checkpoint(config: PreTrainedConfig, folder: Path, *, dtype: torch.dtype) -> None:
    """Save a model with random weights and the embedded model's tokenizer."""
    shipped = {"model": EMBEDDED, "corpus": EMBEDDED, "context_length": 2}
    models.describe(ExtractionSettings.model_validate(shipped)).tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.save_pretrained(folder)
