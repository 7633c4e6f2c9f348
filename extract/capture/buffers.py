"""Host memory for the captured tensors of one batch, filled layer by layer during the forward pass.

Holds ``Buffers``: one tensor for each captured array, with the layer as the first axis, so that the tensors of one
layer are contiguous and a GPU can copy to them while it computes.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import astuple, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from storage.zarr.arrays import TENSORS, LayerSize

IN_FLIGHT = 2
"""Layers whose copies from a GPU may be in progress; ``put`` waits for earlier ones, so their temporaries are freed."""

OF_LAYER = {
    spec.name: replace(spec, dims=tuple(axis for axis in spec.dims if axis != "layer"))
    for spec in TENSORS
    if "layer" in spec.dims and spec.name != "first_key" and not spec.name.startswith("probe_")
}
"""What is captured of one layer, as the store has it of all."""

OF_PATTERNS = ("head_patterns", "pattern_chance", "pattern_queries")
"""The tensors of ``extract.capture.attention.Patterns``, in its order."""

OF_EVERY_QUERY = ("query_measures", "context_means", "query_keys")
"""The tensors of ``extract.capture.attention.EveryQuery``, in its order."""


class Buffers:
    """Memory for the captured tensors of one batch, reused for the next; value states in ``dtype``, others in float32.

    The axes head, kv_head and head_dim are as long as the largest layer needs; elements beyond a smaller layer's are
    NaN. ``received`` and ``every_query`` say whether there is memory for what is only measured if asked for; ``pin``,
    whether it is page-locked, which lets a GPU copy to it while it computes.
    """

    tensors: dict[str, Tensor]
    """All tensors, by the names of ``OF_LAYER``, each with an axis of layers in front."""

    def __init__(
        self,
        layers: Sequence[LayerSize],
        *,
        batch: int,
        queries: int,
        keys: int,
        dtype: torch.dtype,
        received: bool = False,
        every_query: bool = False,
        pin: bool = False,
    ) -> None:
        self.layers = tuple(layers)
        self._lengths = {"sequence": batch, "query": queries, "key": keys}
        optional = {"received_attention": received, **dict.fromkeys(OF_EVERY_QUERY, every_query)}
        largest = find_widest(layers)
        self.tensors = {
            name: torch.empty(
                len(self.layers),
                *self._compute_shape(name, largest),
                dtype=dtype if name == "values" else torch.float32,
                pin_memory=pin,
            )
            for name in OF_LAYER
            if optional.get(name, True)
        }
        for tensor in self.tensors.values():
            for layer, size in enumerate(self.layers):
                if size != largest:
                    tensor[layer].fill_(torch.nan)
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._in_flight: deque[torch.cuda.Event] = deque()

    @property
    def nbytes(self) -> int:
        """Bytes of the memory."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def put(
        self,
        layer: int,
        weights: Tensor,
        values: Tensor,
        learned_sink: Tensor | None,
        received: Tensor | None,
        patterns: Sequence[Tensor],
        every_query: Sequence[Tensor] | None = None,
    ) -> None:
        """Copy the tensors of one layer, with the axes of ``OF_LAYER``, of at most as many sequences as fit.

        Without ``learned_sink`` no head has one; ``received`` attention is kept if there is memory for it. Copies from
        a GPU may continue until ``wait``; the given tensors may be freed meanwhile, but must not be changed.
        """
        sinks = weights.new_zeros(weights.shape[:3]) if learned_sink is None else learned_sink
        given = {"attention": weights, "values": values, "learned_sink": sinks}
        given |= (
            {} if received is None or "received_attention" not in self.tensors else {"received_attention": received}
        )
        given |= {} if every_query is None else dict(zip(OF_EVERY_QUERY, every_query, strict=True))
        given |= dict(zip(OF_PATTERNS, patterns, strict=True))
        batch, room = len(weights), self._lengths["sequence"]
        new_shapes = {name: tuple(new.shape) for name, new in given.items()}
        shapes = {name: (batch, *self._compute_shape(name, self.layers[layer])[1:]) for name in given}
        if batch > room or new_shapes != shapes:
            raise ValueError(
                f"layer {layer} has the shapes {new_shapes}, expected {shapes} and at most {room} sequences"
            )
        for name, new in given.items():
            self._copy(self.tensors[name][layer, :batch], new)
        self._limit(values.device)

    def _compute_shape(self, name: str, size: LayerSize) -> tuple[int, ...]:
        return OF_LAYER[name].shape(
            self._lengths | {"head": size.heads, "kv_head": size.kv_heads, "head_dim": size.head_dim}
        )

    def wait(self) -> None:
        """Wait until all copies have finished."""
        for stream in self._streams.values():
            stream.synchronize()
        self._in_flight.clear()

    def _copy(self, destination: Tensor, new: Tensor) -> None:
        """Copy to memory that may be longer along the axes after the first; from a GPU, on a separate stream."""
        if new.device.type != "cuda":
            destination[tuple(slice(length) for length in new.shape)].copy_(new)
            return
        if new.device not in self._streams:
            self._streams[new.device] = torch.cuda.Stream(new.device)
        stream = self._streams[new.device]
        missing = [after - before for before, after in zip(new.shape, destination.shape, strict=True)]
        ends = [amount for length in reversed(missing) for amount in (0, length)]
        padded = pad(new.to(destination.dtype), ends, value=torch.nan) if any(missing) else new.to(destination.dtype)
        whole = padded.contiguous()  # else the copy is not direct
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


def find_widest(layers: Sequence[LayerSize]) -> LayerSize:
    """Largest numbers of query heads and of KV heads, and largest length of a value state, over the layers."""
    return LayerSize(*(max(column) for column in zip(*map(astuple, layers), strict=True)))
