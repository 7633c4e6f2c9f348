"""Whether a query looks at its keys as it would at the end of a text of its own.

Several queries are captured in one pass. That measures each in the context up to its position only if no row depends on
the tokens after it. It does where positions are rescaled by the length of the text that is read (LongRoPE, dynamic
NTK): in a long pass, every row is then another than in a short one.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from extract.capture import Attention, capture
from storage.errors import UserError

TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 0.2, torch.bfloat16: 0.2}
"""Largest total variation, mean over the heads of a layer, that is taken as rounding, by the type that the model
computes in."""


def read_alone(model: PreTrainedModel, attention: Attention, tokens: NDArray[np.int32], query: int) -> Tensor:
    """The weights of a query at the end of a text (K,) cut after it, float32 (L, H, query + 1).

    It must be read before the whole text: models whose positions have been rescaled for a longer text keep them so.
    """
    captured = capture(model, attention, torch.from_numpy(tokens[None, : query + 1]), [query])
    captured.wait()
    return captured.weights[:, 0, 0]


def check_row(name: str, alone: Tensor, whole: Tensor, keys: int, dtype: torch.dtype) -> None:
    """Refuse a model whose query has other weights in a pass of ``keys`` tokens, (L, H, K), than ``alone``.

    ``UserError`` if they differ by more than rounding.
    """
    seen = alone.shape[-1]
    moved = (alone - whole[..., :seen]).abs().sum(dim=-1).nanmean(dim=-1).nan_to_num() / 2
    layer = int(moved.argmax())
    if moved[layer] > TOLERANCE[dtype]:
        raise UserError(
            f"{name} looks at the keys of the query at {seen - 1} otherwise in a text of {keys} tokens than in one of "
            f"{seen} ({moved[layer]:.2f} of the weight moves in layer {layer}), as with LongRoPE; measure only the "
            "last position of a text, in one study or text for each length"
        )
