"""Compiled kernels of the fit of the four phases: sums over positions, searches over edges, and the last descent.

Holds loops over positions, frequencies and pairs of edges. Letters are those of ``geometry.assumptions.phases``, which
fits and selects the variants.

Two rules keep compilation short and loops vectorised: no slice is assigned as a whole, because that would also compile
NumPy's error messages (3 s for one kernel), and inner loops run from 0 over slices, so that no index can be negative.
"""

import math

import numpy as np
from numpy.typing import NDArray

from geometry.accelerate import compile_kernel, compile_sum_kernel, larger
from geometry.arrays import F64

Observed = tuple[F64, F64, float, F64, float, F64, int, bool]  # The arguments of `find_best_edges` before η and ω
LEAST_OSCILLATION = 8  # Least number of positions of an oscillation, which must also last at least one period
TILE = 256  # Frequencies that are summed together, so that their sums stay in the L1 cache
RESTART = 32  # Positions after which a rotation begins anew, so that its rounding errors do not add up
LEAST_SQUARE = 1e-9  # Lower limit of Σ cos² of an oscillation: below it the amplitude is not determined
LARGEST_ETA = 1.0 - 1e-6  # Largest |η| of an oscillation; at 1 its valleys are 0

MOST_ROUNDS = 20
"""Largest number of alternations of edges and parameters from one starting point; most converge after three."""

MOST_STEPS = 100  # Largest number of steps of one descent; most take fewer than ten

LARGEST_STEP = 0.5
"""Largest step of η, as a share of the distance to ±1, and of the phase at the last position, in radians."""

LEAST_STEP = 1e-9
"""A descent ends after steps of η and of the last position's phase of at most this: the error is about its square."""

LEAST_GAIN = 2.0**-50
"""A descent ends if a step lowers the sum of squares by no more than this share of it, which is within rounding."""

LEAST_CURVATURE = 1e-12  # Lower limit of curvatures, as a share of the largest
MOST_HALVINGS = 40  # Largest number of halvings of a step that does not descend


@compile_sum_kernel
def cosine_sums(z: F64, known: F64, start: float, edges: NDArray[np.int64], out: F64) -> None:
    """Σ z cos(ωx), Σ cos(ωx) and Σ cos²(ωx) over the positions before every edge, into ``out``: (3, edges, ω).

    ω are the multiples of π/P up to π, P of them. Positions are start, start + 1, …, whole numbers; a rotation advances
    the cosine from one to the next, two at a time.
    """
    points = out.shape[2]
    cosine, sine, weighted, plain = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    turns = np.empty((2, 2, TILE))  # by ω, and by 0
    for tile in range(0, points, TILE):
        width = min(TILE, points - tile)
        for w in range(width):
            omega = math.pi * (tile + w + 1) / points
            cosine[w], sine[w] = math.cos(omega * start), math.sin(omega * start)
            turns[0, 0, w], turns[0, 1, w], turns[1, 0, w], turns[1, 1, w] = math.cos(omega), math.sin(omega), 1.0, 0.0
            weighted[w] = plain[w] = 0.0
        done = 0
        for index in range(edges.size):
            for j in range(done, edges[index], 2):
                alone = int(j + 1 == edges[index])
                z_next, known_next = (0.0, 0.0) if alone else (z[j + 1], known[j + 1])
                turn_cosine, turn_sine = turns[alone, 0], turns[alone, 1]
                for w in range(width):
                    c = cosine[w] * turns[0, 0, w] - sine[w] * turns[0, 1, w]
                    s = sine[w] * turns[0, 0, w] + cosine[w] * turns[0, 1, w]
                    weighted[w] += z[j] * cosine[w] + z_next * c
                    plain[w] += known[j] * cosine[w] + known_next * c
                    cosine[w] = c * turn_cosine[w] - s * turn_sine[w]
                    sine[w] = s * turn_cosine[w] + c * turn_sine[w]
            done = edges[index]
            for w in range(width):
                out[0, index, tile + w], out[1, index, tile + w] = weighted[w], plain[w]
    _fill_squares(known, edges, out)


@compile_sum_kernel
def _fill_squares(known: F64, edges: NDArray[np.int64], out: F64) -> None:
    """Σ cos²(ωx) from the Σ cos(ωx) of ``cosine_sums``: cos² is half of 1 and the cosine of 2ω, or of 2π − 2ω."""
    points, count, done = out.shape[2], 0.0, 0
    for index in range(edges.size):
        for j in range(done, edges[index]):
            count += known[j]
        done = edges[index]
        for w in range(points):
            twice = min(2 * w + 2, 2 * points - 2 * w - 2)
            out[2, index, w] = 0.5 * (count + (out[1, index, twice - 1] if twice > 0 else count))


@compile_sum_kernel
def least_squares_by_frequency(prefix: F64, first: NDArray[np.int64], columns: F64) -> tuple[F64, F64]:
    """The smallest sum of squares over pairs of edges for every ω, ∞ without a pair, and its amplitude, (ω,) each.

    ``prefix``: ``cosine_sums``. ``first``: for every pair of edges, T_2 and T_1, the index of the least ω that has a
    period between them, (edges, edges); that of no ω for pairs that are left out. ``columns``: for every edge of T_2,
    (6, edges): the sum of squares without oscillation; the terms of the growth in the sums of z times the cosine, of
    the cosine and of its square, if one amplitude is used for both; level; count.
    """
    best, amplitude, room = np.empty(prefix.shape[2]), np.zeros(prefix.shape[2]), np.empty((5, TILE))
    for tile in range(0, best.size, TILE):
        width = min(TILE, best.size - tile)
        for w in range(width):
            best[tile + w] = np.inf
        for high in range(first.shape[0]):
            if columns[0, high] < np.inf:
                least = _maximise(prefix, first[high, :high], tile, width, columns[:, high], room)
                for w in range(least, width):
                    chosen = room[0, w] / room[1, w]
                    rss = columns[0, high] - room[0, w] * chosen
                    if rss < best[tile + w]:
                        best[tile + w], amplitude[tile + w] = rss, chosen
    return best, amplitude


@compile_sum_kernel
def _maximise(prefix: F64, first: NDArray[np.int64], tile: int, width: int, column: F64, room: F64) -> int:
    """Fill the terms of the T_1 that explains most with one T_2, and return the first ω of the tile that has any T_1.

    first: by T_1, all those before T_2; tile, width: which ω; column: of T_2; room: the terms Σ z cos and Σ cos²,
    without what level and growth explain, and workspace, (5, TILE).
    """
    least, high = width, first.size
    for w in range(width):
        room[0, w], room[1, w] = 0.0, 1.0
        cosine = prefix[1, high, tile + w] + column[2]
        room[2, w], room[3, w] = prefix[0, high, tile + w] + column[1] - cosine * column[4], cosine
        room[4, w] = prefix[2, high, tile + w] + column[3]
    for low in range(high):
        start = max(first[low] - tile, 0)
        if start < width:
            least = min(least, start)
            _keep_larger(room, prefix, low, tile, start, width, column)
    return least


@compile_sum_kernel
def _keep_larger(room: F64, prefix: F64, low: int, tile: int, start: int, width: int, column: F64) -> None:
    """Keep the terms of one T_1 where weighted²/square is larger, which takes no division; arguments as above."""
    weighted, square = room[0, start:width], room[1, start:width]
    weighted_high, cosine_high, square_high = room[2, start:width], room[3, start:width], room[4, start:width]
    weighted_low, cosine_low = prefix[0, low, tile + start :], prefix[1, low, tile + start :]
    square_low, level, inverse = prefix[2, low, tile + start :], column[4], 1.0 / column[5]
    for w in range(weighted.size):
        cosine, most, of_most = cosine_high[w] - cosine_low[w], weighted[w], square[w]
        of_pair = weighted_high[w] - weighted_low[w] + cosine_low[w] * level
        by = larger(square_high[w] - square_low[w] - cosine * cosine * inverse, LEAST_SQUARE)
        more = of_pair * of_pair * of_most > most * most * by
        weighted[w] = of_pair if more else most
        square[w] = by if more else of_most


@compile_sum_kernel
def fill_waves(omega: float, start: float, eta: float, waves: F64) -> None:
    """cos(ωx), sin(ωx) and log(1 + η cos(ωx)) at the positions from ``start``, into ``waves``, (3, m)."""
    turn_cosine, turn_sine, cosine, sine = math.cos(omega), math.sin(omega), 0.0, 0.0
    for j in range(waves.shape[1]):
        if j % RESTART == 0:
            cosine, sine = math.cos(omega * (start + j)), math.sin(omega * (start + j))
        waves[0, j], waves[1, j], waves[2, j] = cosine, sine, math.log1p(eta * cosine)
        cosine, sine = cosine * turn_cosine - sine * turn_sine, sine * turn_cosine + cosine * turn_sine


@compile_kernel
def follow_starts(observed: Observed, starts: F64) -> tuple[float, int, int, float, float, float, float]:
    """The best curve with an oscillation over all starts: its sum of squares, edges, level, η, rate and ω; ∞ for none.

    From each start edges and parameters alternate until neither changes, or the parameters leave the domain. observed:
    the arguments of ``find_best_edges`` before η and ω; starts: η and ω, (start, 2).
    """
    z, known, first, sums, _, _, _, tied = observed
    best, behind = (np.inf, -1, -1, 0.0, 0.0, 0.0, 0.0), np.empty(6)
    for start in range(starts.shape[0]):
        eta, omega, end = starts[start, 0], starts[start, 1], (np.inf, -1, -1, 0.0, 0.0, 0.0, 0.0)
        for _ in range(MOST_ROUNDS):
            low, high = find_best_edges(*observed, eta, omega)
            if sums[0, high] == 0.0:  # no weight behind it: the same curve without growth
                high = z.size
            if low < 0 or (low == end[1] and high == end[2]):
                break
            for index in range(5):
                behind[index] = sums[index, high]
            behind[5] = sums[0, 0]
            rss, level, eta, rate, omega = descend(z, known, first, low, high, behind, tied, eta, omega)
            omega = omega % (2.0 * math.pi) if rss < np.inf else 0.0
            omega = min(omega, 2.0 * math.pi - omega)  # the same cosine at every position
            if omega * (high - low) < 2.0 * math.pi:
                break
            end = (rss, low, high, level, eta, rate, omega)
        if end[0] < best[0]:
            best = end
    return best


@compile_sum_kernel
def find_best_edges(
    z: F64,
    known: F64,
    first: float,
    sums: F64,
    square: float,
    reduced: F64,
    least_edge: int,
    tied: bool,
    eta: float,
    omega: float,
) -> tuple[int, int]:
    """The pair of edges with the smallest sum of squares for an oscillation that lasts a period; −1 if there is none.

    Arguments as for ``descend``, and as in ``geometry.assumptions.phases._Search``; ``reduced`` is not used if the rate
    is tied.
    """
    shortest = max(LEAST_OSCILLATION, math.ceil(2.0 * math.pi / omega))
    waves, gains = _sum_waves(z, known, first, eta, omega)
    best, best_high, best_offset, best_inverse = np.inf, -1, 0.0, 0.0
    lowest_gain, least, most = np.inf, np.inf, -np.inf
    for high in range(least_edge + shortest, waves.size):
        lowest_gain = min(lowest_gain, gains[high - shortest])
        least, most = min(least, waves[high - shortest]), max(most, waves[high - shortest])
        base, slack, count = reduced[0, high], reduced[1, high], reduced[2, high]
        if tied:
            base = square - 2.0 * eta * sums[4, high] + eta * eta * sums[2, high]
            slack, count = -eta * sums[1, high], sums[0, 0]
        if base < np.inf:
            last = high - shortest + 1
            offset, inverse = slack - waves[high], 1.0 / count
            reach = max(most + offset, -least - offset)
            if base - gains[high] + lowest_gain - reach * reach * inverse > best:
                continue  # no edge of T_1 gives a smaller sum
            rss = base - gains[high] + _find_least(waves[least_edge:last], gains[least_edge:last], offset, inverse)
            if rss < best:
                best, best_high, best_offset, best_inverse = rss, high, offset, inverse
    lowest, best_low = np.inf, -1
    for low in range(least_edge, best_high - shortest + 1):
        t = best_offset + waves[low]
        rss = gains[low] - t * t * best_inverse
        if rss < lowest:
            lowest, best_low = rss, low
    return best_low, best_high


@compile_sum_kernel
def _sum_waves(z: F64, known: F64, first: float, eta: float, omega: float) -> tuple[F64, F64]:
    """Σ h and Σ (2z − h) h over the positions before every edge, h = log(1 + η cos(ωx)), (m + 1,) each."""
    waves, gains, of_each = np.zeros(z.size + 1), np.zeros(z.size + 1), np.empty((3, z.size))
    fill_waves(omega, first, eta, of_each)
    for j in range(z.size):
        wave = known[j] * of_each[2, j]
        waves[j + 1], gains[j + 1] = waves[j] + wave, gains[j] + (2.0 * z[j] - wave) * wave
    return waves, gains


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
) -> tuple[float, float, float, float, float]:
    """Find the nearest minimum of the sum of squares over η and ω with fixed edges: the sum, level, η, rate and ω.

    All ∞ if the descent does not converge, or ends beyond ``LARGEST_ETA``. ``z``, ``known``: as in
    ``geometry.assumptions.phases._Search``, (m,), element 0 at position ``first``; ``behind``: its ``sums`` at the edge
    ``high``, (5,), followed by the number of all positions with weight, (6,); ``tied``: whether the rate of growth is
    η, otherwise it is free.

    Level and free rate follow from η and ω (variable projection), so two parameters are left. Newton's method with the
    exact second derivatives: along a direction of negative curvature the step is reversed, and steps are halved until
    they descend.
    """
    reach = first + high - 1.0
    waves = np.empty((3, high - low))
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
            return 2.0 * here[0], here[6], eta, here[7], omega
        if last:
            break
    return np.inf, np.inf, np.inf, np.inf, np.inf


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
    waves: workspace for ``fill_waves``, (3, high − low).
    """
    total = 0.0
    fill_waves(omega, first + low, eta, waves)
    for j in range(high - low):
        total += known[low + j] * waves[2, j]
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
        sine = 0.0 if omega == math.pi else waves[1, j]
        residual = k * (z[low + j] - level - waves[2, j])
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
