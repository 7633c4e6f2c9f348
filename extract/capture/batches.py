"""Batches: which sequences a model reads together, how many fit into memory, and checks of captured tensors.

Sequence i is read in the batch that begins at i // size * size, whichever sequences are missing, so the result for a
sequence depends on the batch size but not on which other sequences are missing.

Several queries are captured in one pass. That measures each in the context up to its position only if no row depends on
the tokens after it. It does where positions are rescaled by the length of the text that is read (LongRoPE, dynamic
NTK): ``check_row`` refuses such models.
"""

import logging
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from extract.capture.buffers import OF_PATTERNS, Buffers
from extract.capture.one_pass import Attention, Capture, capture
from extract.models.loading import is_out_of_memory
from extract.settings import ExtractionSettings
from storage.errors import UserError

CAPTURED_BYTES = 2**30
"""Bytes of the captured tensors of one batch of automatic size, unless one sequence takes more."""

MOST_TOGETHER = 16
"""Most sequences of a batch of automatic size: a larger one is hardly faster, and needs more memory."""

CPU_TOKENS = 2**11
"""Most tokens of several sequences in a batch of automatic size on a CPU: the states of more leave its cache, and a
batch is written while the next is computed."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """Consecutive sequences that were read together, and their captured tensors."""

    first: int
    wanted: Sequence[int]
    """Indices of the sequences of the batch that are missing in the store, ascending."""
    size: int
    """Nominal batch size; the last batch of a study may have fewer sequences."""
    tokens: NDArray[np.int32]
    """Token ids, int32 (sequences, keys)."""
    captured: Capture
    probed: dict[str, Tensor]
    """What heads look at in the sequences of the probe, by the names of the store's arrays; empty without a probe."""


def choose_batch_size(settings: ExtractionSettings, attention: Attention, device: torch.device) -> int:
    """First batch size: the requested one, or as many as ``CAPTURED_BYTES`` and on a CPU ``CPU_TOKENS`` allow.

    It depends only on sizes and the kind of device, not on the memory that is free at the moment, which a later run
    could not reproduce.
    """
    if settings.batch_size == "auto":
        with torch.device("meta"):  # on which tensors take no memory
            one = Buffers(attention.layers, batch=1, **_list_sizes(settings, attention)).nbytes
        most = CPU_TOKENS // settings.context_length if device.type == "cpu" else MOST_TOGETHER
        wanted = max(1, min(MOST_TOGETHER, most, CAPTURED_BYTES // one))
    else:
        wanted = settings.batch_size
    return min(wanted, settings.sequences)


def _list_sizes(settings: ExtractionSettings, attention: Attention) -> dict[str, Any]:
    """The arguments of ``Buffers`` for a study, but for the number of sequences."""
    return {
        "queries": len(settings.query_positions),
        "keys": settings.context_length,
        "dtype": attention.dtype,
        "received": settings.sink_measure,
        "every_query": settings.every_query,
    }


def read_batches(
    model: PreTrainedModel,
    attention: Attention,
    tokens: NDArray[np.int32],
    missing: Sequence[int],
    settings: ExtractionSettings,
    size: int,
    probe: NDArray[np.int32] | None = None,
) -> Iterator[Batch]:
    """Read every batch of ``tokens`` (sequences, keys) that has a ``missing`` sequence, always completely, in order.

    If memory runs out, the batch size is halved from there on, with a warning in the log; no sequence is wanted in two
    batches. Batches are captured into two buffers in turn: request the next batch but one only when this one is no
    longer needed. ``probe`` has as many other sequences, of which only what heads look at is kept.

    Memory beside the forward pass: that of two ``Buffers``, page-locked with a model on a GPU, for which torch
    rounds each tensor up to a power of two.
    """
    reader, at = _Reader(model, attention, settings, size), 0
    while at < len(missing):
        first = missing[at] // reader.size * reader.size
        together = tokens[first : first + reader.size]
        captured = reader.read(together, None if probe is None else probe[first : first + reader.size])
        if captured is None:
            reader.halve()
            continue
        after = bisect_left(missing, first + reader.size)
        yield Batch(first, missing[at:after], reader.size, together, *captured)
        at = after


@dataclass
class _Reader:
    """A model that reads batches of at most ``size`` sequences, and the buffers of two batches."""

    model: PreTrainedModel
    attention: Attention
    settings: ExtractionSettings
    size: int
    buffers: deque[Buffers] = field(default_factory=deque)
    """Those that were not used last first; made when they are first needed."""

    @property
    def pinned(self) -> bool:
        """Whether tensors are captured from a GPU, into page-locked memory."""
        return self.model.device.type == "cuda"

    def read(
        self, tokens: NDArray[np.int32], probe: NDArray[np.int32] | None
    ) -> tuple[Capture, dict[str, Tensor]] | None:
        """Capture a batch and what heads look at in the probe.

        Returns None if memory runs out, after the attempt's memory has been released.
        """
        try:
            if len(self.buffers) == 2:
                self.buffers.rotate()
            else:
                sizes = _list_sizes(self.settings, self.attention)
                self.buffers.appendleft(Buffers(self.attention.layers, batch=self.size, **sizes, pin=self.pinned))
            probed = {}
            if probe is not None:  # captured to the same memory, before the batch
                first = self._capture(probe)
                first.wait()
                probed = {f"probe_{name.split('_')[1]}": first[name].clone() for name in OF_PATTERNS}
            return self._capture(tokens, every_query=self.settings.every_query), probed
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        return None

    def _capture(self, tokens: NDArray[np.int32], *, every_query: bool = False) -> Capture:
        """Capture a batch to the buffers whose turn it is."""
        queries = self.settings.query_positions
        ids = torch.from_numpy(tokens)
        return capture(self.model, self.attention, ids, queries, self.buffers[0], every_query=every_query)

    def halve(self) -> None:
        """Halve the batch size and release the buffers."""
        from accelerate.utils import release_memory

        self.buffers.clear()
        release_memory()
        if self.pinned and hasattr(torch.accelerator, "empty_host_cache"):  # older releases of torch lack it
            torch.accelerator.empty_host_cache()
        if self.size == 1:
            refuse_for_memory(self.settings)
        logger.warning("out of memory with %d sequences at a time; continuing with %d", self.size, self.size // 2)
        self.size //= 2


def refuse_for_memory(settings: ExtractionSettings) -> NoReturn:
    """Refuse a study (``UserError``) of which not even one sequence fits into memory."""
    raise UserError(
        f"There is not enough memory for one sequence of {settings.context_length} tokens with the model "
        f"'{settings.model.id}'; lower context_length, set dtype: bfloat16 or device_map: auto, or use another device"
    )


def check_numbers(batch: Batch, settings: ExtractionSettings) -> None:
    """Wait for a batch, and refuse (``UserError``, by layer) numbers that are not finite or overflow in the store."""
    captured = batch.captured
    captured.wait()
    for layer, size in enumerate(captured.layers):
        if not is_finite(captured, layer):
            better = "bfloat16 or float32" if settings.dtype == "float16" else "float32"
            remedy = f"{settings.dtype} overflows or is too coarse; set dtype to {better}"
            if settings.dtype == "float32":
                remedy = "its weights are damaged or it overflows; get another checkpoint"
            raise UserError(
                f"The model '{settings.model.id}' computes numbers that are not finite in layer {layer}: {remedy}"
            )
        check_range(captured["values"][layer, :, : size.kv_heads, :, : size.head_dim], layer, settings)


def is_finite(captured: Capture, layer: int) -> bool:
    """Whether all numbers of a layer are finite; those captured on a GPU must have arrived."""
    size = captured.layers[layer]
    weights = captured["attention"][layer, :, :, : size.heads]
    values = captured["values"][layer, :, : size.kv_heads, :, : size.head_dim]
    sinks = captured["learned_sink"][layer, :, :, : size.heads]
    return all(bool(numbers.isfinite().all()) for numbers in (weights, values, sinks))


def check_range(values: Tensor, layer: int, settings: ExtractionSettings) -> None:
    """Refuse value states (``UserError``) that overflow the type in which they, or their distances, are stored."""
    if not values.numel():
        return  # the layer has no attention
    largest = float(values.abs().max())
    if 2 * math.sqrt(values.shape[-1]) * largest > torch.finfo(torch.float32).max:  # may be the distance of two
        raise UserError(
            f"The model '{settings.model.id}' has value states of up to {largest:.3g} in layer {layer}, whose "
            "distances may be too large for float32; get a checkpoint with smaller ones"
        )
    if settings.values == "float16" and values.to(torch.float16).isinf().any():
        raise UserError(
            f"The model '{settings.model.id}' has value states of up to {largest:.3g} in layer "
            f"{layer}, too large for float16; set values: float32"
        )


TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 0.2, torch.bfloat16: 0.2}
"""Largest total variation, mean over the heads of a layer, that is taken as rounding, by the type that the model
computes in."""


def read_alone(model: PreTrainedModel, attention: Attention, tokens: NDArray[np.int32], query: int) -> Tensor:
    """The weights of a query at the end of a text (K,) cut after it, float32 (L, H, query + 1).

    It must be read before the whole text: models whose positions have been rescaled for a longer text keep them so.
    """
    captured = capture(model, attention, torch.from_numpy(tokens[None, : query + 1]), [query])
    captured.wait()
    return captured["attention"][:, 0, 0]


def check_row(name: str, alone: Tensor, whole: Tensor, keys: int, dtype: torch.dtype) -> None:
    """Refuse a model whose query has other weights in a pass of ``keys`` tokens, (L, H, K), than ``alone``."""
    seen = alone.shape[-1]
    moved = (alone - whole[..., :seen]).abs().sum(dim=-1).nanmean(dim=-1).nan_to_num() / 2
    layer = int(moved.argmax())
    if moved[layer] > TOLERANCE[dtype]:
        raise UserError(
            f"{name} looks at the keys of the query at {seen - 1} otherwise in a text of {keys} tokens than in one of "
            f"{seen} ({moved[layer]:.2f} of the weight moves in layer {layer}), as with LongRoPE; measure only the "
            "last position of a text, in one study or text for each length"
        )
