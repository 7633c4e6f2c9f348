"""Weights rounded to a type in which GGUF files store them, as if the model had been read from such a file.

The package gguf quantises and dequantises; only its block types that it can quantise in Python are offered.
"""

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from storage.errors import UserError


@torch.inference_mode()
def round_weights(model: PreTrainedModel, kind: str) -> None:
    """Replace every matrix of a model, but no vector, by what a GGUF file of a type (``Q8_0``) would give back.

    Matrices are quantised along the axis that they are multiplied over, as in a file; tied ones once. One at a time is
    in memory as float32. ``UserError`` if the blocks of the type do not divide a matrix.
    """
    of_type = GGMLQuantizationType[kind]
    transposed = {id(module.weight) for module in model.modules() if isinstance(module, Conv1D)}
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            continue
        rows = weight.mT if id(weight) in transposed else weight
        block = GGML_QUANT_SIZES[of_type][0]
        if rows.shape[-1] % block:
            raise UserError(
                f"Weights cannot be rounded to {kind}: {name} has rows of {rows.shape[-1]}, no multiple of {block}"
            )
        stored = quantize(np.ascontiguousarray(rows.float().cpu().numpy()), of_type)
        rows.copy_(torch.from_numpy(dequantize(stored, of_type)))
