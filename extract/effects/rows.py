"""All rows of attention of a text, a block of queries at a time: sums over them, and their largest weights.

A study stores the weights of a few queries. What needs those of every query, as the examples of HeadVis do, lets the
model read the text again with ``read_rows``; no matrix of all queries and keys is in memory.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from extract.capture import two_pass
from extract.capture.one_pass import Attention
from extract.effects.interventions import Call, run_base
from extract.effects.sparsity import iterate_blocks
from geometry.arrays import F64

Take = Callable[[int, Tensor, Tensor], None]
"""Takes the weights of consecutive queries of a layer: its number, the positions of the queries, (R,), and the weights
of the first E keys, float32 (H, R, E)."""

SUMMED = ("self", "previous", "entropy", "distance", "squared_distance", "induction")
"""What ``RowSums`` adds over rows, in the order of its last axis."""

LEAST_INDUCTION = 0.01
"""Weights below this do not count as induction, as in Neuronpedia's pipeline of HeadVis."""

LARGEST = 8
"""Most weights that are kept of a row."""

LEAST = 0.005
"""Least weight that is kept."""


def read_rows(model: PreTrainedModel, attention: Attention, ids: Tensor, take: Take) -> None:
    """Let a model read one text, and ``take`` the weights of all its rows, layer by layer in blocks of queries.

    Memory in addition to a plain pass: the weights of a block of queries of one layer
    (``extract.effects.sparsity.BLOCK_BYTES`` or one query); of all layers if the model is read in two passes.

    ``ids`` are (K,).
    """

    def take_all(call: Call) -> Tensor:
        for block in iterate_blocks(call):
            take(call.layer, block.positions, block.weights[0])
        return call.output()

    if attention.path == "two-pass":
        two_pass.read_rows(model, attention.layers, ids[None].to(model.device, torch.long), take)
    else:
        run_base(model, attention, take_all, ids[None])


@dataclass(frozen=True)
class RowSums:
    """Sums over the rows of one text of what HeadVis measures, and the largest weight of each head.

    Of the query at q, the weights on q and on q - 1; the entropy −Σ α ln α; the distance q - k and its square, weighted
    by the weights; and the weights of at least ``LEAST_INDUCTION`` on keys that follow an earlier copy of its token.
    """

    ids: Tensor
    """Token ids, (K,)."""
    sums: F64
    """To be filled, (L, H, ``SUMMED``)."""
    largest: F64
    """Largest weight but those of the query and of the key at position 0, to be filled, (L, H)."""

    @classmethod
    def begin(cls, ids: Tensor, layers: int, heads: int) -> "RowSums":
        """Of no rows."""
        return cls(ids, np.zeros((layers, heads, len(SUMMED))), np.zeros((layers, heads)))

    def take(self, layer: int, rows: Tensor, weights: Tensor) -> None:
        """Add rows; as ``Take``."""
        tokens = self.ids.to(weights.device)
        keys = torch.arange(weights.shape[-1], device=weights.device)
        distance = (rows[:, None] - keys).float()
        copies = (tokens[rows, None] == tokens[keys - 1]) & (keys > 0) & (keys <= rows[:, None])
        sums = [
            (weights * (distance == 0)).sum(dim=(1, 2)),
            (weights * (distance == 1)).sum(dim=(1, 2)),
            -torch.xlogy(weights, weights).sum(dim=(1, 2)),
            (weights * distance).sum(dim=(1, 2)),
            (weights * distance.square()).sum(dim=(1, 2)),
            (weights * copies * (weights >= LEAST_INDUCTION)).sum(dim=(1, 2)),
        ]
        inner = (weights * ((rows[:, None] > 0) & (keys > 0))).amax(dim=(1, 2)).cpu().numpy()
        heads = len(weights)
        self.sums[layer, :heads] += torch.stack(sums, dim=-1).cpu().numpy()
        self.largest[layer, :heads] = np.maximum(self.largest[layer, :heads], inner)


@dataclass(frozen=True)
class LargestWeights:
    """The largest weights of every row of some heads of one text: at most ``LARGEST``, each at least ``LEAST``."""

    keys: int
    """Length of the text."""
    wanted: NDArray[np.bool_]
    """Which heads, (L, H)."""
    parts: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = field(default_factory=lambda: defaultdict(list))
    """By layer and head, of each block of rows, the places q · keys + k, ascending, and the weights."""

    def take(self, layer: int, rows: Tensor, weights: Tensor) -> None:
        """Keep the largest of rows; as ``Take``."""
        heads = np.flatnonzero(self.wanted[layer, : len(weights)])
        if not heads.size:
            return
        chosen = weights[torch.from_numpy(heads).to(weights.device)]
        values, keys = chosen.topk(min(LARGEST, weights.shape[-1]), dim=-1)
        places = (rows[:, None] * self.keys + keys).flatten(1).cpu()
        for head, place, value in zip(heads.tolist(), places, values.flatten(1).cpu(), strict=True):
            kept = (value >= LEAST).nonzero()[:, 0]
            order = kept[place[kept].argsort()]
            self.parts[layer, head].append((place[order], value[order]))

    def join(self, layer: int, head: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The places of a head's weights, ascending, and the weights."""
        places, values = zip(*self.parts[layer, head], strict=True)
        return torch.cat(places).numpy(), torch.cat(values).numpy()
