"""Reading stores of models whose layers differ: which layers and heads exist, and their part of each array.

Arrays have room for the largest layer (``storage.zarr.arrays.LayerSize``); these functions never read the elements that
a smaller layer does not fill.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from storage.zarr.arrays import LayerSize
    from storage.zarr.sequences import SequenceStore

BLOCK_BYTES = 2**23
"""Bytes of a layer that are read at once, as float64, unless one sequence takes more."""


class Layers(Protocol):
    """A store, a model or what was captured of one, whose layers may differ."""

    @property
    def layers(self) -> "Sequence[LayerSize]":
        """Sizes of each layer."""


class Arrays(Layers, Protocol):
    """Arrays whose first axis is the sequence: a store, or its like in memory."""

    @property
    def sizes(self) -> dict[str, int]:
        """Size of each axis by name."""

    def read(self, name: str, index: Any) -> NDArray[Any]:
        """Read a part of an array."""


def read_query_positions(store: "SequenceStore") -> tuple[int, ...]:
    """Position of each query of a tensor store, the same in every sequence, ascending."""
    return tuple(store.read("query_position", 0).tolist())


def list_attending_layers(store: Layers) -> list[int]:
    """Numbers of the layers that have softmax attention, ascending."""
    return [layer for layer, size in enumerate(store.layers) if size.heads]


def list_sizes(store: "SequenceStore") -> "list[LayerSize]":
    """Sizes of the layers that have softmax attention, in order."""
    return [size for size in store.layers if size.heads]


def count_keys(store: "SequenceStore") -> NDArray[np.int64]:
    """Count the keys that each query of a tensor store sees in every layer with attention, int64 (sequence, query,
    layer).

    The queries are those of ``read_query_positions``, the layers those of ``list_attending_layers``.
    """
    first_key = store.read("first_key", slice(None))[:, :, list_attending_layers(store)]
    counts: NDArray[np.int64] = np.asarray(read_query_positions(store), np.int64)[:, None] + 1 - first_key
    return counts


def find_present_heads(store: Arrays) -> NDArray[np.bool_]:
    """Which of the heads that arrays have room for exist, bool (layer, head)."""
    there: NDArray[np.bool_] = np.arange(store.sizes["head"]) < np.array([[size.heads] for size in store.layers])
    return there


def index_part(size: "LayerSize", dims: Sequence[str], **where: int | slice) -> tuple[int | slice, ...]:
    """The index of the heads of one size in an array with the axes ``dims``; others are as in ``where``, or whole."""
    own: dict[str, int | slice] = {
        "head": slice(size.heads),
        "kv_head": slice(size.kv_heads),
        "head_dim": slice(size.head_dim),
    }
    index = own | where
    return tuple(index.get(dim, slice(None)) for dim in dims)


def read_layer(store: "SequenceStore", name: str, layer: int, **where: int | slice) -> NDArray[Any]:
    """Read the part of an array that belongs to one layer: its own heads and, of value states, ``head_dim``.

    ``where`` are indices or slices along other axes by name; an axis with an index is left out of the result, one that
    is not named is read completely, and one that the array lacks is ignored.
    """
    return store.read(name, index_part(store.layers[layer], store.specs[name].dims, layer=layer, **where))


def split_sequences(sequences: int, bytes_of_one: int, most: int) -> list[slice]:
    """Numbers of the sequences that are read at once: at most ``most`` bytes, unless one sequence takes more."""
    step = max(1, most // max(1, bytes_of_one))
    return [slice(first, min(first + step, sequences)) for first in range(0, sequences, step)]
