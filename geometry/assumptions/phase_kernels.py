"""Compiled kernels of the fit of the four phases: sums over positions, searches over edges, and the last descent.

Holds loops over positions, frequencies and pairs of edges. Letters are those of ``geometry.assumptions.phases``, which
fits and selects the variants.

Two rules keep compilation short and loops vectorised: no slice is assigned as a whole, because that would also compile
NumPy's error messages (3 s for one kernel), and inner loops run from 0 over slices, so that no index can be negative.
"""

import math

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_sum_kernel, larger
from geometry.arrays import F64

TILE = 256
"""Frequencies that are summed together, so that their sums stay in the L1 cache."""

LEAST_SQUARE = 1e-9
"""Lower limit of Σ cos² of an oscillation: below it the amplitude is not determined."""

LARGEST_ETA = 1.0 - 1e-6
"""Largest |η| of an oscillation; at 1 its valleys are 0."""

MOST_STEPS = 100
"""Largest number of steps of one descent; most take fewer than ten."""

LARGEST_STEP = 0.5
"""Largest step of η, as a share of the distance to ±1, and of the phase at the last position, in radians."""

LEAST_STEP = 1e-9
"""A descent ends after steps of η and of the last position's phase of at most this: the error is about its square."""

LEAST_GAIN = 2.0**-50
"""A descent ends if a step lowers the sum of squares by no more than this share of it, which is within rounding."""

LEAST_CURVATURE = 1e-12
"""Lower limit of curvatures, as a share of the largest."""

MOST_HALVINGS = 40
"""Largest number of halvings of a step that does not descend."""


@compile_sum_kernel
def cosine_sums(z: F64, known: F64, start: float, omegas: F64, edges: NDArray[np.int64], out: F64) -> None:
    """Σ z cos(ωx), Σ cos(ωx) and Σ cos²(ωx) over the positions before every edge, into ``out``: (3, edges, ω).

    Positions are start, start + 1, …; a rotation advances the cosine from one to the next.
    """
    cosine, sine, turn_cosine, turn_sine = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    weighted, plain, square = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for tile in range(0, omegas.size, TILE):
        width = min(TILE, omegas.size - tile)
        for w in range(width):
            omega = omegas[tile + w]
            cosine[w], sine[w] = math.cos(omega * start), math.sin(omega * start)
            turn_cosine[w], turn_sine[w] = math.cos(omega), math.sin(omega)
            weighted[w] = plain[w] = square[w] = 0.0
        done = 0
        for index in range(edges.size):
            for j in range(done, edges[index]):
                for w in range(width):
                    c, s = cosine[w], sine[w]
                    weighted[w] += z[j] * c
                    plain[w] += known[j] * c
                    square[w] += known[j] * c * c
                    cosine[w] = c * turn_cosine[w] - s * turn_sine[w]
                    sine[w] = s * turn_cosine[w] + c * turn_sine[w]
            done = edges[index]
            for w in range(width):
                out[0, index, tile + w] = weighted[w]
                out[1, index, tile + w] = plain[w]
                out[2, index, tile + w] = square[w]


@compile_sum_kernel
def least_squares_by_frequency(prefix: F64, first: NDArray[np.int64], columns: F64) -> F64:
    """The smallest sum of squares over pairs of edges for every ω, (ω,); ∞ if there is no pair.

    Parameters
    ----------
    prefix
        ``cosine_sums``.
    first
        For every pair of edges, T_2 and T_1, the index of the least ω that has a period between them, (edges, edges);
        −1 for pairs that are left out.
    columns
        For every edge of T_2, (6, edges): the sum of squares without oscillation; the terms of the growth in the sums
        of z times the cosine, of the cosine and of its square, if one amplitude is used for both; level; count.
    """
    best = np.empty(prefix.shape[2])
    for w in range(best.size):
        best[w] = np.inf
    for high in range(first.shape[0]):
        if columns[0, high] == np.inf:
            continue
        for low in range(high):
            start = first[high, low]
            if start >= 0:
                _lower(
                    prefix[0, high, start:],
                    prefix[1, high, start:],
                    prefix[2, high, start:],
                    prefix[0, low, start:],
                    prefix[1, low, start:],
                    prefix[2, low, start:],
                    columns[:, high],
                    best[start:],
                )
    return best


@compile_sum_kernel
def _lower(
    weighted_high: F64,
    cosine_high: F64,
    square_high: F64,
    weighted_low: F64,
    cosine_low: F64,
    square_low: F64,
    column: F64,
    best: F64,
) -> None:
    """Update the smallest sums of squares with those of one pair of edges, whose sums are given, (ω,) each."""
    base, z_growth, growth, growth_square, level = column[0], column[1], column[2], column[3], column[4]
    inverse = 1.0 / column[5]
    for w in range(best.size):
        cosine = cosine_high[w] - cosine_low[w] + growth
        weighted = weighted_high[w] - weighted_low[w] + z_growth - cosine * level
        square = square_high[w] - square_low[w] + growth_square - cosine * cosine * inverse
        best[w] = -larger(-best[w], weighted * weighted / larger(square, LEAST_SQUARE) - base)


@compile_sum_kernel
def find_best_edges(
    waves: F64, gains: F64, base: F64, slack: F64, count: F64, least_edge: int, shortest: int
) -> tuple[int, int]:
    """The pair of edges, at least ``shortest`` apart, with the smallest sum of squares; −1 if there is none.

    Parameters
    ----------
    waves, gains
        Σ h and Σ (2z − h) h over the positions before every edge, (m + 1,).
    base, slack, count
        As in ``geometry.assumptions.phases._ReducedSum``.
    """
    best, best_high = np.inf, -1
    for high in range(least_edge + shortest, waves.size):
        if base[high] < np.inf:
            last = high - shortest + 1
            offset, inverse = slack[high] - waves[high], 1.0 / count[high]
            rss = (
                base[high] - gains[high] + _find_least(waves[least_edge:last], gains[least_edge:last], offset, inverse)
            )
            if rss < best:
                best, best_high = rss, high
    if best_high < 0:
        return -1, -1
    offset, inverse = slack[best_high] - waves[best_high], 1.0 / count[best_high]
    lowest, best_low = np.inf, -1
    for low in range(least_edge, best_high - shortest + 1):
        t = offset + waves[low]
        rss = gains[low] - t * t * inverse
        if rss < lowest:
            lowest, best_low = rss, low
    return best_low, best_high


@compile_sum_kernel
def _find_least(waves: F64, gains: F64, offset: float, inverse: float) -> float:
    """The minimum of gains − (offset + waves)² · inverse."""
    most = -np.inf
    for low in range(waves.size):
        t = offset + waves[low]
        most = larger(most, t * t * inverse - gains[low])
    return -most


@compile_sum_kernel
def descend(
    z: F64, known: F64, first: float, low: int, high: int, behind: F64, tied: bool, eta: float, omega: float
) -> tuple[float, float, float, float]:
    """Find the nearest minimum of the sum of squares over η and ω with fixed edges: its level, η, rate and ω.

    Parameters
    ----------
    z, known
        As in ``geometry.assumptions.phases._Search``, (m,).
    first
        The position of element 0.
    behind
        ``geometry.assumptions.phases._Search.sums`` at the edge ``high``, (5,), followed by the number of all positions
        with weight: (6,).
    tied
        Whether the rate of growth is η; otherwise it is free.

    Returns
    -------
    level, eta, rate, omega
        All NaN if the descent does not converge, or ends beyond ``LARGEST_ETA``.

    Notes
    -----
    Level and free rate follow from η and ω (variable projection), so two parameters are left. Newton's method with the
    exact second derivatives: along a direction of negative curvature the step is reversed, and steps are halved until
    they descend.
    """
    reach = first + high - 1.0
    waves = np.empty((2, high - low))
    here, there = np.empty(8), np.empty(8)
    evaluate_reduced(z, known, first, low, high, behind, tied, eta, omega, waves, here)
    for _ in range(MOST_STEPS):
        step_eta, step_omega, gain = _compute_newton_step(here, eta, reach)
        last = gain <= LEAST_GAIN * here[0] or max(abs(step_eta), abs(step_omega) * reach) <= LEAST_STEP
        for _ in range(MOST_HALVINGS):
            evaluate_reduced(z, known, first, low, high, behind, tied, eta + step_eta, omega + step_omega, waves, there)
            if last or there[0] <= here[0]:
                break
            step_eta, step_omega = 0.5 * step_eta, 0.5 * step_omega
        eta, omega = eta + step_eta, omega + step_omega
        here, there = there, here
        if last and abs(eta) <= LARGEST_ETA:
            return here[6], eta, here[7], omega
        if last:
            break
    return np.nan, np.nan, np.nan, np.nan


@compile_sum_kernel
def _compute_newton_step(state: F64, eta: float, reach: float) -> tuple[float, float, float]:
    """One step of η and of ω, and the decrease of half the sum of squares in the quadratic approximation.

    Steps are measured in units of the distance of η to ±1, and in radians at the last position.
    """
    unit_eta, unit_omega = 1.0 - abs(eta), 1.0 / reach
    g_eta, g_omega = state[1] * unit_eta, state[2] * unit_omega
    a, b, c = state[3] * unit_eta * unit_eta, state[4] * unit_eta * unit_omega, state[5] * unit_omega * unit_omega
    half, spread = 0.5 * (a + c), math.hypot(0.5 * (a - c), b)
    turn = 0.5 * math.atan2(2.0 * b, a - c)
    x, y = math.cos(turn), math.sin(turn)
    tiny = LEAST_CURVATURE * (abs(half) + spread) + 1e-300
    along = -(x * g_eta + y * g_omega) / max(abs(half + spread), tiny)
    across = -(x * g_omega - y * g_eta) / max(abs(half - spread), tiny)
    step_eta, step_omega = x * along - y * across, y * along + x * across
    short = min(1.0, LARGEST_STEP / max(abs(step_eta), abs(step_omega), 1e-300))
    gain = -0.5 * (step_eta * g_eta + step_omega * g_omega)
    return short * step_eta * unit_eta, short * step_omega * unit_omega, gain


@compile_sum_kernel
def evaluate_reduced(
    z: F64,
    known: F64,
    first: float,
    low: int,
    high: int,
    behind: F64,
    tied: bool,
    eta: float,
    omega: float,
    waves: F64,
    state: F64,
) -> None:
    """Half the sum of squares at η and ω with the best level and rate, its derivatives, level and rate, into ``state``.

    state: half the sum, its first derivatives by η and ω, its second by η twice, by both, and by ω twice, level, rate.
    waves: workspace for cosines and logarithms of the oscillation, (2, high − low).
    """
    total = 0.0
    for j in range(high - low):
        cosine = math.cos(omega * (first + low + j))
        waves[0, j], waves[1, j] = cosine, math.log1p(eta * cosine)
        total += known[low + j] * waves[1, j]
    u, u_squares, u_z, count = behind[1], behind[2], behind[4], behind[5]
    if tied:
        rate = eta
        level = -(rate * u + total) / count
    else:
        count -= u * u / u_squares
        level = -(u * u_z / u_squares + total) / count
        rate = (u_z - level * u) / u_squares
    half = slope_eta = slope_omega = mean_eta = mean_omega = bend_eta = bend_both = bend_omega = 0.0
    for j in range(low):
        residual = known[j] * (z[j] - level)
        half += residual * residual
    for j in range(high, z.size):
        residual = known[j] * (z[j] - level - rate * (j - high + 1.0))
        half += residual * residual
        if tied:
            slope_eta -= residual * (j - high + 1.0)
    if tied:
        mean_eta, bend_eta = u, u_squares
    for j in range(high - low):
        x, cosine, k = first + low + j, waves[0, j], known[low + j]
        inverse = k / (1.0 + eta * cosine)
        sine = 0.0 if omega == math.pi else math.sin(omega * x)
        residual = k * (z[low + j] - level - waves[1, j])
        by_eta, by_omega = cosine * inverse, -eta * x * sine * inverse
        half += residual * residual
        slope_eta -= residual * by_eta
        slope_omega -= residual * by_omega
        mean_eta += by_eta
        mean_omega += by_omega
        bend_eta += by_eta * by_eta * (1.0 + residual)
        bend_both += by_eta * by_omega + residual * x * sine * inverse * inverse
        bend_omega += by_omega * by_omega + residual * eta * x * x * (cosine + eta) * inverse * inverse
    state[0], state[1], state[2] = 0.5 * half, slope_eta, slope_omega
    state[3] = bend_eta - mean_eta * mean_eta / count
    state[4] = bend_both - mean_eta * mean_omega / count
    state[5] = bend_omega - mean_omega * mean_omega / count
    state[6], state[7] = level, rate
