"""Percentile bootstrap of means over sequences, in memory that does not grow with the number of sequences.

Holds the resampling; an accumulator of a mean and its resampled means; the means of Precision, Recall and the other
metrics that follow from the counts, for the heads of a layer and for the whole model; and the correlation over heads of
mean Recall and mean ρ_0. What does not belong here: where the counts come from (stores, Dask), and statistics other
than means over sequences.

The same resampled sequences are used for every head, N and metric of a study, so intervals of sums and differences of
means can be computed from the same replicates.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.blas import dgemm, sgemm

from geometry.accelerate import compile_kernel
from geometry.arrays import F32, F64
from geometry.statistics.quantiles import quantiles_of_replicates
from geometry.threads import one_blas_thread

REPLICATES = 1000
"""Replicates; with this many the ends of a 95 % interval vary by 9 % of a standard error."""

LEVEL = 0.95
"""Share of the replicates that an interval contains."""

METRICS = ("precision", "recall", "f_r_max", "f_r_min", "specificity", "precision_excess")
"""The metrics that ``selection_means`` averages, in the order of its first axis; the last follows from the first."""

ACCUMULATOR_BYTES = 2**27
"""Largest size of the resampled sums that ``selection_means`` holds at a time, unless those of one N take more."""

BLOCK = 32
"""Sequences that are resampled with one matrix product."""

QUANTILE_ELEMENTS = 2**21
"""Resampled means that are sorted at a time."""

LEAST_HEADS = 3
"""Least number of heads of a correlation: that of two heads is always 1 or −1."""

LEAST_SHARE = 0.5
"""Share of the replicates that must have a correlation for there to be an interval."""

SUMS = 6
"""Number of sums over heads that a correlation needs: those of 1, R, ρ, R², ρ², Rρ."""

Counts = tuple[NDArray[np.integer], NDArray[np.integer]]
"""K_in and K_out of one sequence, integers (head, N)."""


def draw_sequences(sequences: int, replicates: int = REPLICATES, *, seed: int = 0) -> F32:
    """Draw how often each sequence occurs in each replicate: whole numbers, float32 (sequences, replicates).

    Every column holds as many draws with replacement as there are sequences. Takes 4 · sequences · replicates bytes.

    Raises
    ------
    ValueError
        If there are no sequences or no replicates, or more sequences than float32 can count exactly (2²⁴).
    """
    if not 1 <= sequences <= 2**24 or replicates < 1:
        msg = f"sequences must be 1 to 2**24 and replicates at least 1, got {sequences} and {replicates}"
        raise ValueError(msg)
    rng = np.random.default_rng(seed)
    drawn = np.empty((sequences, replicates), np.float32)
    for replicate in range(replicates):
        drawn[:, replicate] = np.bincount(rng.integers(sequences, size=sequences), minlength=sequences)
    return drawn


class MeansAccumulator:
    """Means over sequences of an array of quantities, and the same means over resampled sequences.

    The sums are of differences to the first sequence. A quantity that is the same in all sequences therefore has an
    interval of width 0 at exactly that value, and float32 is precise enough for the replicates.

    Parameters
    ----------
    shape
        Shape of the quantities of one sequence.
    drawn
        The resampling, (sequences, replicates).
    """

    def __init__(self, shape: tuple[int, ...], drawn: F32) -> None:
        self.shape = shape
        self._drawn = drawn
        self._added = 0
        size = int(np.prod(shape))
        self._reference: F64 = np.zeros(size)
        self._sum: F64 = np.zeros(size)
        nothing = 0 if len(drawn) > 1 else np.nan  # with one sequence the variance of the mean is unknown
        self._resampled: F32 = np.full((size, drawn.shape[1]), nothing, np.float32)

    @one_blas_thread
    def add(self, block: ArrayLike) -> None:
        """Add the next sequences: floats (any number of sequences, *shape).

        Raises
        ------
        ValueError
            If the shape differs, or there are more sequences than in the resampling.
        """
        values = np.asarray(block, np.float64)
        first, after = self._added, self._added + len(values)
        if values.shape[1:] != self.shape or after > len(self._drawn):
            msg = f"expected up to {len(self._drawn) - first} sequences of shape {self.shape}, got {values.shape}"
            raise ValueError(msg)
        values = values.reshape(len(values), self._sum.size)
        if first == 0 and after > 0:
            self._reference = values[0].copy()
        difference = values - self._reference
        self._sum += difference.sum(axis=0)
        self._resample(self._drawn[first:after], difference.astype(np.float32))
        self._added = after

    def _resample(self, drawn: F32, difference: F32) -> None:
        """Add (s, replicates) times (s, size) to the resampled sums, in place."""
        if difference.size:
            sgemm(1.0, drawn.T, difference.T, beta=1.0, c=self._resampled.T, trans_b=True, overwrite_c=True)

    @property
    def mean(self) -> F64:
        """The mean over all sequences, float64 of the given shape."""
        return (self._reference + self._sum / self._count_sequences()).reshape(self.shape)

    def deviations(self, axis: int) -> F32:
        """Resampled means minus the mean, summed along an axis of the shape; NaN for one sequence.

        float32; the shape without that axis, followed by the axis of replicates.
        """
        sequences = self._count_sequences()
        deviations: F32 = self._resampled.reshape(*self.shape, -1).sum(axis=axis)
        deviations -= self._sum.reshape(self.shape).sum(axis=axis)[..., None].astype(np.float32)
        deviations /= sequences
        return deviations

    def interval(self, level: float = LEVEL) -> tuple[F64, F64]:
        """The percentile interval of the mean: its ends, each float64 of the given shape; NaN for one sequence.

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1, or sequences are missing.
        """
        ends = self._reference + _quantiles(self._resampled, level) / self._count_sequences()
        low, high = ends.reshape(2, *self.shape)
        return low, high

    def _count_sequences(self) -> int:
        """Number of sequences that were added.

        Raises
        ------
        ValueError
            If not all sequences of the resampling were added.
        """
        if self._added != len(self._drawn):
            msg = f"{self._added} of {len(self._drawn)} sequences were added"
            raise ValueError(msg)
        return self._added


def estimate_accumulator_bytes(size: int, replicates: int) -> int:
    """Upper bound of the memory of ``size`` means while ``BLOCK`` sequences are being added or sorted, in bytes."""
    adding = (8 + 8 + 8 + 4) * BLOCK  # as given, as an array, minus the first sequence, in float32
    return size * (4 * replicates + 16 + adding) + 3 * 4 * QUANTILE_ELEMENTS


@dataclass(frozen=True)
class LayerMeans:
    """Means over sequences of one layer's heads; the first axis is ``METRICS``, element i of the last N = i + 1."""

    mean: F64
    """Mean over sequences, (metric, head, N)."""
    low: F64
    """Lower end of its bootstrap interval, (metric, head, N); NaN for one sequence."""
    high: F64
    """Upper end of that interval."""
    deviations: F32
    """Resampled mean minus the mean, summed over heads, (metric, N, replicates)."""


def selection_means(
    sequences: Callable[[], Iterable[Counts]], *, heads: int, n_keys: int, drawn: F32, level: float = LEVEL
) -> LayerMeans:
    """Mean ``METRICS`` of the heads of one layer.

    Definitions 1-3 and eq. 4 of the paper: P = N/(N + K_out), R = K_in/N, F = 2x/(1 + x) of each; specificity
    1 − K_out/(n − N), and Precision's excess (P − N/n)/(1 − N/n) above its floor; per sequence, then the mean over
    sequences.

    Parameters
    ----------
    sequences
        Returns, every time it is called, K_in and K_out of all sequences in order, each an integer array (head, N) with
        −1 beyond N = ``n_keys`` − 1. It is called once for every ``ACCUMULATOR_BYTES`` of resampled sums.
    heads
        Query heads of the layer.
    n_keys
        Keys that its queries may attend to, the same for every sequence.
    drawn
        The resampling of the study, (sequences, replicates).
    level
        Share of the replicates that the intervals contain.

    Raises
    ------
    ValueError
        If the number of sequences differs from the resampling, or a sequence has a number of keys other than
        ``n_keys``.

    Notes
    -----
    Memory in addition to the result: ``estimate_accumulator_bytes`` of ``ACCUMULATOR_BYTES`` / (4 · replicates)
    quantities, 182 MiB for 1000 replicates, for any number of sequences, heads and keys. The deviations take 24 ·
    (``n_keys`` − 1) · replicates bytes in the result, and at most as much again while they are computed.
    """
    replicates, resampled = drawn.shape[1], len(METRICS) - 1
    means = np.empty((3, len(METRICS), heads, n_keys - 1))
    deviations = np.empty((len(METRICS), n_keys - 1, replicates), np.float32)
    step = max(1, ACCUMULATOR_BYTES // (4 * resampled * heads * replicates))
    for first in range(0, n_keys - 1, step):
        part = slice(first, min(first + step, n_keys - 1))
        means[:, :-1, :, part], deviations[:-1, part] = _average_metrics(sequences(), part, heads, n_keys, drawn, level)
    floor = np.arange(1, n_keys) / n_keys
    means[:, -1] = (means[:, 0] - floor) / (1 - floor)  # the same linear map for all sequences, and so for their means
    deviations[-1] = deviations[0] / (1 - floor[:, None])
    mean, low, high = _clip_shares(means)
    return LayerMeans(mean, low, high, deviations)


class ModelMeans:
    """Means over all heads of a model, added layer by layer: the mean of the means of the heads, equally weighted.

    The mean at N is over the heads that attend to more than N keys.

    Parameters
    ----------
    n_keys
        Largest number of keys that a query of the model may attend to.
    replicates
        Number of replicates of the resampling.
    """

    def __init__(self, n_keys: int, replicates: int = REPLICATES) -> None:
        self.heads: NDArray[np.int64] = np.zeros(n_keys - 1, np.int64)
        """Number of added heads that have this N, (N,)."""
        self._sum: F64 = np.zeros((len(METRICS), n_keys - 1))
        self._deviations: F64 = np.zeros((len(METRICS), n_keys - 1, replicates))

    def add(self, layer: LayerMeans) -> None:
        """Add the heads of a layer."""
        _, heads, n = layer.mean.shape
        self.heads[:n] += heads
        self._sum[:, :n] += layer.mean.sum(axis=1)
        self._deviations[:, :n] += layer.deviations

    @property
    def mean(self) -> F64:
        """Mean over heads of their means, float64 (metric, N); NaN where no head has this N."""
        return _clip_shares(np.where(self.heads > 0, self._sum / np.maximum(self.heads, 1), np.nan))

    def interval(self, level: float = LEVEL) -> tuple[F64, F64]:
        """The percentile interval over sequences of that mean: its ends, (metric, N); NaN for one sequence.

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1.
        """
        deviations = _quantiles(self._deviations.reshape(-1, self._deviations.shape[-1]), level)
        low, high = _clip_shares(self.mean + deviations.reshape(2, *self.mean.shape) / np.maximum(self.heads, 1))
        return low, high


def estimate_model_bytes(n_keys: int, replicates: int) -> int:
    """Memory of a ``ModelMeans`` and of the deviations of the layer being added, in bytes."""
    return len(METRICS) * (n_keys - 1) * (8 + 4) * (replicates + 1)


class SinkEffect:
    """Pearson correlation over heads of mean Recall R(r_min, N) and mean ρ_0, for every N (Section 4.1, Figure 6).

    Layers are added one by one. The correlation at N is over the heads that attend to more than N keys and have a ρ_0
    that is not NaN in at least one sequence. The mean ρ_0 is over these sequences, the mean Recall over all sequences.

    Parameters
    ----------
    n_keys
        Largest number of keys that a query of the model may attend to.
    drawn
        The resampling of the study, (sequences, replicates).

    Notes
    -----
    The data, with each sequence drawn once, are an additional replicate, so the correlation and its replicates are
    computed in the same way. Sums over sequences are sums of whole numbers below 2⁵³: K_in, and ρ_0 in multiples of a
    power of two (2⁻⁴⁵ for 100 sequences; every float32 above 2⁻²² is such a multiple). They are exact in any order, so
    equal means have a difference of exactly 0. Sums over heads are of differences to the first head that is included,
    so that digits in which the heads agree do not reduce the precision.

    Memory: ``estimate_sink_effect_bytes``, for any number of layers.
    """

    def __init__(self, n_keys: int, drawn: F32) -> None:
        self._drawn: F64 = np.column_stack([np.ones(len(drawn)), drawn])
        self._sums: F64 = np.zeros((n_keys - 1, self._drawn.shape[1], SUMS))
        self._reference: F64 = np.zeros((n_keys - 1, self._drawn.shape[1], 2))

    def add(
        self, sequences: Callable[[], Iterable[NDArray[np.integer]]], rho_0: NDArray[np.floating], n_keys: int
    ) -> None:
        """Add the heads of a layer.

        Parameters
        ----------
        sequences
            Returns, every time it is called, K_in of all sequences in order, each an integer array (head, N) with −1
            beyond N = ``n_keys`` − 1. It is called once for every ``ACCUMULATOR_BYTES`` of resampled sums.
        rho_0
            ρ_0 of every head, a cosine, (sequence, head); NaN where it does not exist.
        n_keys
            Keys that the layer's queries may attend to, the same for every sequence.

        Raises
        ------
        ValueError
            If the number of sequences differs from the resampling, a sequence has a number of keys other than
            ``n_keys``, ``n_keys`` exceeds that of the model, or ``rho_0`` is not a cosine.
        """
        if n_keys - 1 > len(self._sums):
            msg = f"n_keys of a layer must be at most that of the model, {len(self._sums) + 1}, got {n_keys}"
            raise ValueError(msg)
        means = _average_cosines(rho_0, self._drawn)
        if not np.isfinite(means).any():
            return
        step = max(1, ACCUMULATOR_BYTES // (8 * means.size))
        for first in range(0, n_keys - 1, step):
            part = slice(first, min(first + step, n_keys - 1))
            recalled = _sum_k_in(sequences(), part, len(means), n_keys, self._drawn)
            _add_heads(recalled, means, self._reference[part], self._sums[part])
            del recalled  # free it before the next part is allocated

    @property
    def heads(self) -> NDArray[np.int64]:
        """Number of heads in the correlation, (N,)."""
        return self._sums[:, 0, 0].astype(np.int64)

    @property
    def correlation(self) -> F64:
        """The correlation, float64 (N,).

        NaN for fewer than ``LEAST_HEADS`` heads, and where Recall or ρ_0 is the same in all heads, as Recall is at
        N = 1.
        """
        return _correlations(self._sums[:, 0])

    def interval(self, level: float = LEVEL) -> tuple[F64, F64]:
        """The percentile interval over sequences of the correlation: its ends, (N,).

        Replicates without a correlation are left out. NaN for one sequence, where there is no correlation, and where
        fewer than ``LEAST_SHARE`` of the replicates have one.

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1.
        """
        _check_level(level)
        ends = np.full((2, len(self._sums)), np.nan)
        enough = LEAST_SHARE * (self._drawn.shape[1] - 1)
        for n in np.flatnonzero(np.isfinite(self.correlation) & (len(self._drawn) > 1)):
            replicates = _correlations(self._sums[n, 1:])
            known = replicates[np.isfinite(replicates)]
            if known.size >= enough:
                ends[:, n] = _quantiles(known[None], level)[:, 0]
        return ends[0], ends[1]


def estimate_sink_effect_bytes(n_keys: int, sequences: int, heads: int, replicates: int) -> int:
    """Upper bound of the memory of a ``SinkEffect`` while a layer is added, in bytes, without the counts of a sequence.

    The part ``ACCUMULATOR_BYTES`` is larger if the resampled sums of a single N are.
    """
    kept = (SUMS + 2) * (n_keys - 1) + sequences + 4 * heads
    return 8 * (replicates + 1) * kept + ACCUMULATOR_BYTES + 2 * BLOCK * (ACCUMULATOR_BYTES // replicates)


def _average_cosines(rho_0: NDArray[np.floating], drawn: F64) -> F64:
    """Mean over resampled sequences of values that are not NaN, (sequence, head) → (head, replicate), by exact sums."""
    known = ~np.isnan(rho_0)
    if len(rho_0) != len(drawn) or not (np.abs(rho_0[known]) <= 1).all():
        msg = f"rho_0 must be cosines ({len(drawn)} sequences, head), got {rho_0.dtype} {rho_0.shape}"
        raise ValueError(msg)
    grid = 2.0 ** (52 - len(drawn).bit_length())
    total = np.rint(np.where(known, rho_0, 0) * grid).T @ drawn
    draws = known.T.astype(np.float64) @ drawn
    means: F64 = np.divide(total, draws * grid, out=np.full(total.shape, np.nan), where=draws > 0)
    return means


def _sum_k_in(sequences: Iterable[NDArray[np.integer]], part: slice, heads: int, n_keys: int, drawn: F64) -> F64:
    """Exact sums of K_in over resampled sequences for the N of ``part``, (head, N, replicate)."""
    total, added = np.zeros((heads * (part.stop - part.start), drawn.shape[1])), 0
    counts = (_flatten_k_in(k_in, part, heads, n_keys) for k_in in sequences)
    while block := list(islice(counts, BLOCK)):
        weights = drawn[added : added + len(block)]
        added += len(block)
        if added <= len(drawn):
            dgemm(1.0, weights.T, np.array(block).T, beta=1.0, c=total.T, trans_b=True, overwrite_c=True)
    if added != len(drawn):
        msg = f"{added} of {len(drawn)} sequences were added"
        raise ValueError(msg)
    return total.reshape(heads, -1, drawn.shape[1])


def _flatten_k_in(k_in: NDArray[np.integer], part: slice, heads: int, n_keys: int) -> F64:
    """K_in of a sequence for the N of ``part``, (head · N,), after a check that it is known for the right N."""
    _check("K_in", k_in, heads, n_keys)
    return k_in[:, part].astype(np.float64).ravel()


@compile_kernel
def _add_heads(recalled: F64, rho_0: F64, reference: F64, sums: F64) -> None:
    """Add heads to the sums over heads of differences to the first head.

    recalled: N times the Recall of all drawn sequences, (head, N, replicate); rho_0: (head, replicate), NaN for heads
    that are left out; reference: (N, replicate, 2), R and ρ of the first head, set if not set yet; sums:
    (N, replicate, ``SUMS``).
    """
    heads, sizes, replicates = recalled.shape
    for n in range(sizes):
        for head in range(heads):
            for replicate in range(replicates):
                recall, rho = recalled[head, n, replicate], rho_0[head, replicate]
                if np.isnan(rho):
                    continue
                origin, total = reference[n, replicate], sums[n, replicate]
                if total[0] == 0.0:
                    origin[0], origin[1] = recall, rho
                x, y = recall - origin[0], rho - origin[1]
                total[0] += 1.0
                total[1] += x
                total[2] += y
                total[3] += x * x
                total[4] += y * y
                total[5] += x * y


def _correlations(sums: F64) -> F64:
    """Pearson's correlation from sums over heads, (…, ``SUMS``) → (…); NaN where there is none."""
    heads, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    count = np.maximum(heads, 1)
    spread_x, spread_y = xx - x * x / count, yy - y * y / count
    known = (heads >= LEAST_HEADS) & (spread_x > 0) & (spread_y > 0)
    scale = np.sqrt(np.where(known, spread_x, 1)) * np.sqrt(np.where(known, spread_y, 1))
    return np.where(known, np.clip((xy - x * y / count) / scale, -1, 1), np.nan)


def _average_metrics(
    sequences: Iterable[Counts], part: slice, heads: int, n_keys: int, drawn: F32, level: float
) -> tuple[F64, F32]:
    """Mean and ends of its interval for the N of ``part``, (3, metric, head, N), and deviations summed over heads.

    The last metric is left out.
    """
    means = MeansAccumulator((len(METRICS) - 1, heads, part.stop - part.start), drawn)
    metrics = (_compute_metrics(*_check_counts(counts, heads, n_keys), part, n_keys) for counts in sequences)
    while block := list(islice(metrics, BLOCK)):
        means.add(block)
    return np.stack([means.mean, *means.interval(level)]), means.deviations(axis=1)


def _clip_shares(means: F64) -> F64:
    """Clip means of shares, and ends of their intervals, to [0, 1]: replicates are rounded to float32."""
    return np.clip(means, 0, 1)


def _check_counts(counts: Counts, heads: int, n_keys: int) -> Counts:
    """The counts of a sequence, after a check that both are known for the right N."""
    for name, count in zip(("K_in", "K_out"), counts, strict=True):
        _check(name, count, heads, n_keys)
    return counts


def _check(name: str, count: NDArray[np.integer], heads: int, n_keys: int) -> None:
    """Raise a ValueError unless a count of one sequence is known for exactly N = 1 to ``n_keys`` − 1."""
    known = count[:, : n_keys - 1] >= 0
    if known.shape != (heads, n_keys - 1) or not known.all() or (count[:, n_keys - 1 :] >= 0).any():
        msg = f"{name} must be counts (head, N) of {heads} heads for exactly N = 1 to {n_keys - 1}, got {count.shape}"
        raise ValueError(msg)


def _compute_metrics(k_in: NDArray[np.integer], k_out: NDArray[np.integer], part: slice, n_keys: int) -> F64:
    """All metrics of a sequence except the last, (metric, head, N)."""
    n = np.arange(part.start + 1, part.stop + 1, dtype=np.float64)
    precision, recall, specificity = n / (n + k_out[:, part]), k_in[:, part] / n, 1 - k_out[:, part] / (n_keys - n)
    return np.stack([precision, recall, *(2 * other / (1 + other) for other in (precision, recall)), specificity])


def _quantiles(resampled: NDArray[np.floating], level: float) -> F64:
    """The two quantiles of the last axis that enclose a share ``level``: (size, replicates) → (2, size)."""
    _check_level(level)
    rows = max(1, QUANTILE_ELEMENTS // resampled.shape[1])
    ends = np.empty((2, len(resampled)))
    for first in range(0, len(resampled), rows):
        part = slice(first, first + rows)
        ends[:, part] = quantiles_of_replicates(resampled[part], [(1 - level) / 2, (1 + level) / 2])
    return ends


def _check_level(level: float) -> None:
    """Raise a ValueError unless the level is between 0 and 1."""
    if not 0 < level < 1:
        msg = f"level must be between 0 and 1, got {level}"
        raise ValueError(msg)
