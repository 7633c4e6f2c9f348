"""Host memory for what is captured of one batch, filled layer by layer while the forward pass goes on.

Holds ``Buffers``: one tensor each for weights, value states and learned sinks, the layer as the first axis, so that
what one layer brings has one contiguous place, copied to from a GPU beside its work. What does not belong here: how
attention is captured (``extract.capture``, ``extract.two_pass``), and what becomes of it (``extract.extraction``).
"""

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from storage.zarr.arrays import LayerSize

IN_FLIGHT = 2
"""Layers whose copies from a GPU may be under way; ``put`` waits for earlier ones, so their temporaries are freed."""


class Buffers:
    """Memory for the captured tensors of one batch, used again for the next.

    The axes head, kv_head and head_dim are as long as the largest layer needs; what a smaller layer lacks, and all of a
    layer without softmax attention, is NaN.

    Parameters
    ----------
    layers
        Sizes of all layers of the model.
    batch, queries, keys
        Sequences in a batch at most, queries of each, and length of each.
    dtype
        Of the value states.
    pin
        Whether the memory is page-locked, which lets a GPU copy to it while it goes on computing.
    """

    weights: Tensor
    """Softmax weights, float32 (L, B, Q, H, K)."""
    values: Tensor
    """Value states once per KV head, (L, B, Hkv, K, D)."""
    learned_sink: Tensor
    """Softmax weights of the heads' learned sinks, float32 (L, B, Q, H)."""

    def __init__(
        self,
        layers: Sequence[LayerSize],
        *,
        batch: int,
        queries: int,
        keys: int,
        dtype: torch.dtype,
        pin: bool = False,
    ) -> None:
        self.layers = tuple(layers)
        heads = max(size.heads for size in layers)
        kv_heads = max(size.kv_heads for size in layers)
        head_dim = max(size.head_dim for size in layers)
        count = len(self.layers)
        self.weights = torch.empty(count, batch, queries, heads, keys, dtype=torch.float32, pin_memory=pin)
        self.values = torch.empty(count, batch, kv_heads, keys, head_dim, dtype=dtype, pin_memory=pin)
        self.learned_sink = torch.empty(count, batch, queries, heads, dtype=torch.float32, pin_memory=pin)
        for layer, size in enumerate(self.layers):
            if size != LayerSize(heads, kv_heads, head_dim):
                for tensor in (self.weights, self.values, self.learned_sink):
                    tensor[layer].fill_(torch.nan)
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._in_flight: deque[torch.cuda.Event] = deque()

    @property
    def nbytes(self) -> int:
        """Bytes of the memory."""
        return self.weights.nbytes + self.values.nbytes + self.learned_sink.nbytes

    def put(self, layer: int, weights: Tensor, values: Tensor, learned_sink: Tensor | None = None) -> None:
        """Copy one layer's weights (B, Q, H, K), value states (B, Hkv, K, D) and sinks (B, Q, H; None: no head's).

        From a GPU the copies go on after this returns, until ``wait``; the tensors given may be freed meanwhile, and
        must not be changed.

        Raises
        ------
        ValueError
            If a tensor has not the layer's shape, or more sequences than there is room for.
        """
        sinks = weights.new_zeros(weights.shape[:3]) if learned_sink is None else learned_sink
        size, batch, kept = self.layers[layer], len(weights), (self.weights, self.values, self.learned_sink)
        _, room, queries, _, keys = self.weights.shape
        shapes = (
            (batch, queries, size.heads, keys),
            (batch, size.kv_heads, keys, size.head_dim),
            (batch, queries, size.heads),
        )
        given = (weights, values, sinks)
        if batch > room or any(new.shape != shape for new, shape in zip(given, shapes, strict=True)):
            msg = (
                f"layer {layer} brings {[tuple(new.shape) for new in given]}, expected {list(shapes)}, room for {room}"
            )
            raise ValueError(msg)
        for destination, new in zip(kept, given, strict=True):
            self._copy(destination[layer, :batch], new)
        self._limit(values.device)

    def wait(self) -> None:
        """Wait until all that was put has arrived."""
        for stream in self._streams.values():
            stream.synchronize()
        self._in_flight.clear()

    def _copy(self, destination: Tensor, new: Tensor) -> None:
        """Copy to memory that may be longer along the axes after the first; from a GPU, on a stream of its own."""
        if new.device.type != "cuda":
            destination[tuple(slice(length) for length in new.shape)].copy_(new)
            return
        if new.device not in self._streams:
            self._streams[new.device] = torch.cuda.Stream(new.device)
        stream = self._streams[new.device]
        whole = _padded(new.to(destination.dtype), destination.shape).contiguous()  # else the copy would not be direct
        stream.wait_stream(torch.cuda.current_stream(new.device))
        with torch.cuda.stream(stream):
            destination.copy_(whole, non_blocking=True)
        whole.record_stream(stream)

    def _limit(self, device: torch.device) -> None:
        """Wait for the copies of the layer ``IN_FLIGHT`` before this one."""
        if device in self._streams:
            self._in_flight.append(self._streams[device].record_event())
            if len(self._in_flight) > IN_FLIGHT:
                self._in_flight.popleft().synchronize()


def _padded(tensor: Tensor, shape: torch.Size) -> Tensor:
    """The tensor with NaN after its elements along each axis, to the shape; itself where nothing is missing."""
    missing = [after - before for before, after in zip(tensor.shape, shape, strict=True)]
    ends = [amount for length in reversed(missing) for amount in (0, length)]
    return pad(tensor, ends, value=torch.nan) if any(missing) else tensor
