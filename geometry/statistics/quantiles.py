"""Exact quantiles: of more numbers than fit in memory, of replicates, and of a curve against N over ln N.

Holds ``stream_quantiles``, ``quantiles_of_replicates`` and ``quantile_over_ln_n``.

``stream_quantiles`` is a radix selection: non-negative float32 numbers are ordered as their bit patterns, so three
counts of the numbers by 11, 10 and 10 bits of their pattern find the number of any rank, for any distribution.
Available libraries either hold all numbers in memory (``numpy.quantile``, DuckDB's ``quantile_cont``) or approximate
(t-digest).
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_kernel

SHIFTS = (20, 10, 0)
"""Lowest bit of the digit that each pass counts; the sign bit is 0."""

DIGITS = 2**11
"""Number of values of a digit: 2¹¹ in the first pass; the other passes use 2¹⁰."""


def stream_quantiles(
    blocks: Callable[[], Iterable[NDArray[np.float32]]], probabilities: Sequence[float], heads: int
) -> NDArray[np.float64]:
    """The quantiles of each head's numbers, with linear interpolation, as computed by ``numpy.quantile`` in float64.

    Parameters
    ----------
    blocks
        Returns, each of the three times it is called, the same blocks of numbers: float32 (head, number), finite and
        not negative, in any number.
    probabilities
        Between 0 and 1.
    heads
        Number of heads, such as the heads of one layer.

    Returns
    -------
    ndarray
        float64 (head, probability), in the unit of the numbers; NaN where there are no numbers.

    Raises
    ------
    ValueError
        If a probability is not between 0 and 1, a block has a wrong shape or dtype, a number is negative or not finite,
        or the blocks differ between calls.

    Notes
    -----
    Takes ``estimate_quantile_bytes`` of memory in addition to the blocks, for any number of numbers, and time
    proportional to numbers times probabilities.
    """
    wanted = np.asarray(probabilities, np.float64)
    if wanted.ndim != 1 or not ((wanted >= 0) & (wanted <= 1)).all():
        msg = f"probabilities must be a list of numbers between 0 and 1, got {probabilities!r}"
        raise ValueError(msg)
    first = _count_digits(blocks(), np.zeros((heads, 1), np.int32), SHIFTS[0])
    total = int(first[:1].sum())
    if total == 0:
        return np.full((heads, wanted.size), np.nan)
    position = wanted * (total - 1)
    below = np.floor(position).astype(np.int64)
    ranks = np.concatenate([below, np.minimum(below + 1, total - 1)])
    low, high = np.split(_select_ranks(blocks, first, ranks), 2, axis=1)
    return low + (high - low) * (position - below)


def quantile_over_ln_n(curves: NDArray[np.floating], probability: float) -> NDArray[np.floating]:
    """The value that a curve against N reaches or exceeds over at least a share 1 − probability of ln N.

    It is the largest element c of the curve such that the N with an element ≥ c hold that share of Σ 1/N: every N has
    the weight 1/N, so that the weight is uniform in ln N.

    Parameters
    ----------
    curves
        (…, N), element i of the last axis for N = i + 1. NaN is below every number.
    probability
        Between 0 and 1: 0.05 for the 5 % quantile.

    Returns
    -------
    ndarray
        (…), of the dtype and in the unit of the curves; NaN where more than ``probability`` of ln N is NaN, or there is
        no N.

    Raises
    ------
    ValueError
        If the probability is not between 0 and 1.

    Notes
    -----
    O(N log N) per curve, and 24 bytes of memory per element.
    """
    if not 0 <= probability <= 1:
        msg = f"probability must be a number between 0 and 1, got {probability!r}"
        raise ValueError(msg)
    if not curves.shape[-1]:
        return np.full(curves.shape[:-1], np.nan, curves.dtype)
    order = np.argsort(-curves, axis=-1)  # from the largest; NaN come last
    held = (1 / np.arange(1, curves.shape[-1] + 1))[order].cumsum(axis=-1)
    wanted = (1 - probability - curves.shape[-1] * 2.0**-51) * held[..., -1:]  # minus the rounding error of the sums
    first = (held < wanted).sum(axis=-1, keepdims=True)
    at = np.take_along_axis(order, first, axis=-1)
    quantile: NDArray[np.floating] = np.take_along_axis(curves, at, axis=-1)[..., 0]
    return quantile


def quantiles_of_replicates(replicates: NDArray[np.floating], probabilities: Sequence[float]) -> NDArray[np.floating]:
    """The quantiles of the last axis: ``numpy.quantile`` of a contiguous copy, which is faster to sort than its own.

    Parameters
    ----------
    replicates
        (…, R), float32 or float64, without NaN; they are copied once.
    probabilities
        Between 0 and 1.

    Returns
    -------
    ndarray
        (probability, …), in the unit of the replicates.

    Raises
    ------
    ValueError
        If a probability is not between 0 and 1.
    """
    found: NDArray[np.floating] = np.quantile(replicates.copy(), probabilities, axis=-1, overwrite_input=True)
    return found


def estimate_quantile_bytes(heads: int, probabilities: int) -> int:
    """Upper bound of the memory of ``stream_quantiles`` without the blocks, in bytes: counts and their sums."""
    return 4 * 8 * DIGITS * heads * (2 * probabilities + 1)


def _select_ranks(
    blocks: Callable[[], Iterable[NDArray[np.float32]]], first: NDArray[np.int64], ranks: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The numbers of the given ranks, counted from 0, of each head: (head, rank); ``first``: the counts of pass 1."""
    shape = (len(first), ranks.size)
    patterns, left = np.zeros(shape, np.int32), np.broadcast_to(ranks, shape)
    for shift in SHIFTS:
        counts = first if shift == SHIFTS[0] else _count_digits(blocks(), patterns, shift)
        digit, left = _find_digits(counts, left)
        patterns |= (digit << shift).astype(np.int32)
    return patterns.view(np.float32).astype(np.float64)


def _find_digits(counts: NDArray[np.int64], rank: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The digit of the number of each rank, and its rank among the numbers with the same digit.

    ``counts`` is (head, rank or 1, digit), ``rank`` (head, rank).
    """
    sums = np.broadcast_to(counts.cumsum(axis=-1), (*rank.shape, DIGITS))
    if (rank >= sums[..., -1]).any():
        msg = "blocks must give the same numbers every time they are called"
        raise ValueError(msg)
    digit = (sums <= rank[..., None]).sum(axis=-1)
    before = np.take_along_axis(sums, np.maximum(digit - 1, 0)[..., None], axis=-1)[..., 0]
    return digit, rank - np.where(digit > 0, before, 0)


def _count_digits(blocks: Iterable[NDArray[np.float32]], patterns: NDArray[np.int32], shift: int) -> NDArray[np.int64]:
    """Count the numbers with each digit among those with the higher bits of a pattern: (head, pattern, digit)."""
    heads = len(patterns)
    counts = np.zeros((*patterns.shape, DIGITS), np.int64)
    for block in blocks:
        if block.dtype != np.float32 or block.ndim != 2 or len(block) != heads:
            msg = f"blocks must be float32 of the shape ({heads}, numbers), got {block.dtype} {block.shape}"
            raise ValueError(msg)
        if block.size and not (block.min() >= 0 and block.max() < np.inf):  # false for NaN
            msg = "blocks must hold finite numbers that are not negative"
            raise ValueError(msg)
        bits = (block + np.float32(0)).view(np.int32)  # −0 becomes 0
        _count(bits, patterns, shift, counts)
    return counts


@compile_kernel
def _count(bits: NDArray[np.int32], patterns: NDArray[np.int32], shift: int, counts: NDArray[np.int64]) -> None:
    """Add the numbers of one block to ``counts``; the digit of the first pass has no higher bits."""
    heads, numbers = bits.shape
    first = shift == SHIFTS[0]
    above, mask = (31, DIGITS - 1) if first else (shift + 10, DIGITS // 2 - 1)
    for head in range(heads):
        for rank in range(patterns.shape[1]):
            prefix = patterns[head, rank] >> above
            for number in range(numbers):
                if bits[head, number] >> above == prefix:
                    counts[head, rank, (bits[head, number] >> shift) & mask] += 1
