"""Comparisons of all pairs of a selected key and a key left out, of many heads at once on a CUDA device.

Holds ``separation_of_heads`` and ``separability_of_heads``, which return their results on the host. What does not
belong here: checks of the input (``geometry.separation.chance``), the kernels (``geometry.separation.cuda_kernels``),
the CPU (``geometry.separation.comparisons``).

Letters and the error bound as in ``geometry.separation.kernels``; all arithmetic is in float64. Energies of a tile of
rows of many heads are one matrix product; their intervals are sorted by PyTorch, and one kernel reads each row. If
intervals of a selected key and of a key left out overlap, the row is flagged and recomputed on the host by the kernels
of the CPU. Such rows are rare: a selected key and a key left out must have an equal or nearly equal y.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geometry.arrays import F64, I64
from geometry.selection import cuda
from geometry.separation.comparisons import MEASURES, Keys, Selections, compare_tile, compute_auc, compute_measures
from geometry.separation.kernels import error_factors
from geometry.separation.nulls import NULLS, U64, draw_order, make_key, shuffle_places

TILE_BYTES = 2**28
"""Size of the arrays of a tile: selections, inner products, lower ends, orders, and the workspace of sorting."""

ELEMENT_BYTES = 96
"""Upper bound of the memory of one key of one row."""

ROW_BLOCK = 256
"""Keys that a kernel reads together."""


def separation_of_heads(weights: Tensor, values: Tensor, sizes: I64) -> F64:
    """AUC for every N of ``sizes``, (…, grid); weights (…, n), values (…, n, d) whose leading axes broadcast."""
    lead, n = torch.broadcast_shapes(weights.shape[:-1], values.shape[:-2]), weights.shape[-1]
    counts = np.empty((3, lead.numel(), len(sizes)), np.int64)
    for group, alpha, states in _iterate_groups(weights, values, len(sizes)):
        counts[:, group] = _compare(*_weigh_values(alpha, states), sizes)
    return compute_auc(counts, sizes, n).reshape(*lead, len(sizes))


def separability_of_heads(weights: Tensor, values: Tensor, words: I64, sizes: I64, *, draws: int, sink: bool) -> F64:
    """The measures of the heads and their means over the draws of each null, (1 + nulls, …, measure, grid).

    As ``geometry.separation.nulls.separability_of_heads``, for weights (…, n) and values (…, n, d) whose leading axes
    broadcast to those of ``words``, (…, words).
    """
    keys = [make_key(of_head) for of_head in words.reshape(-1, words.shape[-1])]
    measures = np.empty((1 + len(NULLS), len(keys), len(MEASURES), len(sizes)))
    for group, alpha, states in _iterate_groups(weights, values, len(sizes)):
        measures[:, group] = _separability(alpha, states, keys[group], sizes, draws=draws, sink=sink)
    return measures.reshape(1 + len(NULLS), *words.shape[:-1], len(MEASURES), len(sizes))


def estimate_device_bytes(heads: int, n: int, head_dim: int, grid: int) -> int:
    """Upper bound of the device memory of the functions above without their input, in bytes.

    The workspace that the matrix library (cuBLAS) allocates once is not included.
    """
    # for a component of a key, in bytes: 8 for y, 8 for a shuffled value state, 20 while keys are sorted
    group, rows = _choose_extent(heads, n, head_dim, grid)
    return group * (n * (40 * head_dim + 400) + rows * (ELEMENT_BYTES * n + 64 * head_dim)) + 2**21


def _choose_extent(heads: int, n: int, head_dim: int, grid: int) -> tuple[int, int]:
    """Number of heads that are processed together, and the number of rows of each."""
    group = max(1, min(heads, cuda.MOST_HEADS, TILE_BYTES // (ELEMENT_BYTES * n * max(grid, head_dim // 2))))
    return group, max(1, min(grid, TILE_BYTES // (ELEMENT_BYTES * n * group)))


def _iterate_groups(weights: Tensor, values: Tensor, grid: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Iterate over groups of heads: their slice, weights (head, n) and values (head, n, d)."""
    n, d = values.shape[-2:]
    lead = torch.broadcast_shapes(weights.shape[:-1], values.shape[:-2])
    weights = weights.detach().expand(*lead, n).reshape(-1, n)
    values = values.detach().expand(*lead, n, d).reshape(-1, n, d)
    at_once, _ = _choose_extent(len(weights), n, d, grid)
    with torch.cuda.device_of(weights):
        for start in range(0, len(weights), at_once):
            group = slice(start, start + at_once)
            yield group, weights[group], values[group]


def _weigh_values(weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The y (head, n, d) and ‖y‖ (head, n), float64, in order of falling weight, times a power of two per head."""
    keys = cuda.arrange(weights, values, sink=False)
    return keys.y, keys.norms


def _separability(weights: Tensor, values: Tensor, keys: Sequence[U64], sizes: I64, *, draws: int, sink: bool) -> F64:
    """The results of some heads, (1 + nulls, head, measure, grid)."""
    n, weighted = weights.shape[-1], _weigh_values(weights, values)
    total = np.zeros((1 + len(NULLS), len(keys), len(MEASURES), len(sizes)))
    total[0] = compute_measures(_compare(*weighted, sizes), sizes, n)
    for draw in range(draws):
        ranks = np.argsort([draw_order(key, draw, n) for key in keys], axis=-1)
        total[1] += compute_measures(_compare(*weighted, sizes, ranks), sizes, n)
        places = np.stack([shuffle_places(key, draw, n, sink=sink) for key in keys])
        shuffled = values.take_along_dim(torch.as_tensor(places, device=values.device)[..., None], 1)
        total[2] += compute_measures(_compare(*_weigh_values(weights, shuffled), sizes), sizes, n)
    total[1:] = total[1:] / draws if draws else np.nan
    return total


def _compare(y: Tensor, norms: Tensor, sizes: I64, ranks: I64 | None = None) -> I64:
    """(2 W, K_in, K_out) of some heads for every N of ``sizes``, (3, head, grid).

    ranks: the place of every key in the order of selection, (head, n); by default that of falling weight.
    """
    heads, n, d = y.shape
    ranks = np.broadcast_to(np.arange(n), (heads, n)) if ranks is None else ranks
    counts = np.empty((3, heads, len(sizes)), np.int64)
    _, rows = _choose_extent(heads, n, d, len(sizes))
    for first in range(0, len(sizes), rows):
        part = slice(first, first + rows)
        counts[..., part] = _compare_tile(y, norms, sizes[part], ranks)
    return counts


def _compare_tile(y: Tensor, norms: Tensor, sizes: I64, ranks: I64) -> I64:
    """(2 W, K_in, K_out) of some heads for the rows of a tile, (3, head, row)."""
    heads, n, d = y.shape
    rank, splits = (torch.tensor(array, device=y.device) for array in (ranks, sizes))
    s = torch.bmm((rank[:, None] < splits[:, None]).double(), y)
    products, lengths = torch.bmm(s, y.transpose(1, 2)), torch.linalg.vector_norm(s, dim=-1)
    slope, bend = error_factors(d)
    settings = {"slope": slope, "bend": bend, "block": ROW_BLOCK, "enable_fp_fusion": True}
    grid, low = (len(sizes), heads), torch.empty_like(products)
    _import_kernels().lower_ends[grid](products, norms, lengths, low, len(sizes), n, **settings)
    order = low.argsort(dim=-1)
    counts = torch.empty((heads, len(sizes), 3), dtype=torch.int64, device=y.device)
    flags = torch.empty((heads, len(sizes)), dtype=torch.int32, device=y.device)
    arguments = (products, norms, lengths, order, rank, splits, counts, flags, len(sizes), n)
    _import_kernels().compare_rows[grid](*arguments, **settings)
    counts_of_tile = counts.permute(2, 0, 1).cpu().numpy()
    _settle(y, norms, s, sizes, ranks, flags.cpu().numpy() > 0, counts_of_tile)
    return counts_of_tile


def _settle(y: Tensor, norms: Tensor, s: Tensor, sizes: I64, ranks: I64, flags: Any, counts: I64) -> None:
    """Compare the flagged rows of a tile (head, row) on the host, into ``counts`` (3, head, row)."""
    for head in np.flatnonzero(flags.any(axis=-1)):
        rows = np.flatnonzero(flags[head])
        weighed, norm, centres = (array[head].cpu().numpy() for array in (y, norms, s))
        keys = Keys(np.ones((1, norm.size)), np.arange(norm.size)[None], weighed, norm, 0)
        selected = Selections(np.zeros(1, np.int64), ranks[head, None], centres[rows][None])
        counts[:, head, rows] = compare_tile(keys, selected, sizes[rows])[:, 0]


def _import_kernels() -> Any:
    """Import the module of the kernels; a RuntimeError if Triton is not installed."""
    cuda.import_kernels()
    from geometry.separation import cuda_kernels as cuda_comparison_kernels

    return cuda_comparison_kernels
