"""The definitions of the paper read slowly and literally, without any code of the product.

Holds a float64 reading of every quantity, an exact rational one of what ties decide, and a fast float64 reading of the
counts that settles near ties in exact integers. Each definition of the bounds is a function of its own, so that a test
can put a wrong one in its place.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np

PER_KAPPA = ("precision_upper", "recall_upper")
PER_HEAD = ("value_scale", "weight_sum")

Kappas = Sequence[float]
Counts = dict[str, np.ndarray]


def selected(weights: np.ndarray, size: int) -> list[int]:
    """I_N: the N largest weights; ties go to the lower position."""
    return sorted(range(len(weights)), key=lambda i: (-float(weights[i]), i))[:size]


def split(weights: np.ndarray, size: int) -> tuple[list[int], list[int]]:
    """I_N and the keys left out."""
    inside = selected(weights, size)
    return inside, sorted(set(range(len(weights))) - set(inside))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    length = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / length) if length > 0 else np.nan


def energies(s, y: list[list]) -> list:
    """‖y‖² − 2⟨s, y⟩ of every key: the squared distance from s without the common ‖s‖², summed one by one."""
    return [sum(t * t for t in key) - 2 * sum(a * b for a, b in zip(s, key, strict=True)) for key in y]


def counts(weights: np.ndarray, y: list[list], size: int) -> tuple[int, int]:
    """(K_in, K_out) of eq. 20 for N = size, in whatever arithmetic ``y`` is given in."""
    inside, outside = split(weights, size)
    energy = energies(add([y[i] for i in inside]), y)
    nearest, farthest = min(energy[j] for j in outside), max(energy[i] for i in inside)
    return sum(energy[i] <= nearest for i in inside), sum(energy[j] <= farthest for j in outside)


def rational(weights: np.ndarray, values: np.ndarray) -> list[list[Fraction]]:
    """y in rational arithmetic."""
    return [[Fraction(float(w)) * Fraction(float(x)) for x in v] for w, v in zip(weights, values, strict=True)]


def exact_counts(weights: np.ndarray, values: np.ndarray) -> Counts:
    """The counts for every N in rational arithmetic, without any rounding."""
    y = rational(weights, values)
    found = [counts(weights, y, size) for size in range(1, len(y))]
    return {"k_in": np.array([k for k, _ in found]), "k_out": np.array([k for _, k in found])}


def exceed_bound(
    y: list[list[Fraction]], chosen: Sequence[int], energy: np.ndarray, bound: np.ndarray, factor: float
) -> list[float]:
    """|E − E in rational arithmetic| over its bound for every key, about the sum of those chosen; E in 1/factor².

    9 where E has a bound of 0 and is not exact.
    """
    centre = add([y[key] for key in chosen]) or [Fraction(0)] * len(y[0])
    shares = []
    for value, given, most in zip(energies(centre, y), energy, bound, strict=True):
        error = abs(float(value * Fraction(factor) ** 2 - Fraction(float(given))))
        shares.append(error / most if most > 0 else 9.0 * (error > 0))
    return shares


def exact_errors(weights: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """The quantities of ``SelectionErrors`` for every N in rational arithmetic, rounded once before each root."""
    alpha, y = [Fraction(float(weight)) for weight in weights], rational(weights, values)
    output, mean = add(y), [sum(map(Fraction, column.tolist())) / len(weights) for column in values.T]
    found = []
    for size in range(1, len(y)):
        inside, outside = split(weights, size)
        left_out, kept = (sum(alpha[key] for key in keys) for keys in (outside, inside))
        s = add([y[key] for key in inside])
        wanted = {
            "error_renormalised": [x * (kept + left_out) / kept for x in s],
            "error_mean": [x + left_out * one for x, one in zip(s, mean, strict=True)],
        }
        errors = {name: measure_error(output, one) for name, one in wanted.items()}
        found.append({"weight_left_out": float(left_out), **errors})
    return {name: np.array([row[name] for row in found]) for name in found[0]}


def add(vectors: list[list]) -> list:
    """The sum of vectors."""
    return [sum(column) for column in zip(*vectors, strict=True)]


def measure_error(wanted: list, found: list) -> float:
    """Distance of two vectors over the norm of the first."""
    apart = sum((x - y) ** 2 for x, y in zip(wanted, found, strict=True))
    return float(apart / sum(x * x for x in wanted)) ** 0.5


def exact_halves(weights: np.ndarray, values: np.ndarray, *, sink: bool = True) -> np.ndarray:
    """For every N the number of i∈I_N with g_i > min g_j, whose p is 1/2, in rational arithmetic; −1 if J is empty."""
    y, found = rational(weights, values), []
    for size in range(1, len(y)):
        inside, outside = split(weights, size)
        if len(content(inside, sink=sink)) == 0:
            found.append(-1)
            continue
        s = [sum((y[i][k] for i in content(inside, sink=sink)), Fraction(0)) for k in range(len(y[0]))]
        g = energies(s, y)
        found.append(sum(g[i] > min(g[j] for j in outside) for i in inside))
    return np.array(found)


# The definitions of the bounds, one by one.


def content(inside: list[int], *, sink: bool) -> list[int]:
    """J: the selected keys without the sink."""
    return [i for i in inside if i != 0 or not sink]


def value_scale(values: np.ndarray, *, sink: bool) -> float:
    """C: the median norm of the value states without the sink."""
    return float(np.median(np.linalg.norm(values[1:] if sink else values, axis=1)))


def closest(values: np.ndarray, inside: list[int], outside: list[int], *, sink: bool) -> float:
    """ρ_out: the largest cosine of a key of J and a key left out, at least 0; a value state of 0 has cosine 0."""
    chosen = content(inside, sink=sink)
    if not chosen:
        return np.nan
    length = np.linalg.norm(values, axis=1)
    unit = np.divide(values, length[:, None], out=np.zeros_like(values), where=length[:, None] > 0)
    largest = max(np.einsum("jd,d->j", unit[outside], unit[k]).max() for k in chosen)
    return min(max(largest, 0.0), 1.0)


def ingredients(y: np.ndarray, inside: list[int], outside: list[int], *, sink: bool) -> dict[str, float]:
    """Norms of eq. 7 and 8."""
    a = np.linalg.norm(y, axis=1)
    chosen = a[content(inside, sink=sink)]
    return {
        "a_0": a[0] if sink and 0 in inside else np.nan,
        "s_in": chosen.sum() if len(chosen) else np.nan,
        "a_min_in": chosen.min() if len(chosen) else np.nan,
        "a_max_in": chosen.max() if len(chosen) else np.nan,
        "a_max_out": a[outside].max(),
    }


def potential(y: np.ndarray, inside: list[int], *, sink: bool) -> np.ndarray:
    """g of every key, whose differences are μ of eq. 10."""
    s = y[content(inside, sink=sink)].sum(axis=0)
    return (y * y).sum(axis=1) - 2 * (y * s).sum(axis=1)


def breadth(found: dict[str, float]) -> float:
    """B of eq. 8."""
    return found["a_max_in"] + found["a_max_out"] + found["s_in"]


def steepness(kappa: float, d: int, b: float, c: float, scale: str) -> float:
    """ξ_ij is this times g_j − g_i (eq. 10); with all norms divided by C, g falls by C² and B by C."""
    return np.sqrt(2 * kappa * d) / (b * c if scale == "unit" else b)


def p(xi: np.ndarray) -> np.ndarray:
    """Eq. 9."""
    return np.where(xi < 0, 0.5, np.exp(-xi * xi / 2) / np.sqrt(2 * np.pi) * xi / (1 + xi * xi))


def precision_bound(worst: np.ndarray) -> float:
    """Eq. 13, from the largest p of every selected key."""
    return 1 - worst.max() / (len(worst) + 1)


def recall_bound(worst: np.ndarray, inside: list[int], *, sink: bool) -> float:  # noqa: ARG001  wrong readings need them
    """Eq. 15, from the largest p of every selected key."""
    return float((1 - worst).mean())


# The profile.


def largest_p(
    weights: np.ndarray, values: np.ndarray, size: int, kappas: Kappas, scale: str, *, sink: bool
) -> list[np.ndarray]:
    """For each κ, of every selected key the largest p over the keys left out; NaN where the bounds do not exist."""
    inside, outside = split(weights, size)
    y = weights[:, None] * values
    g = potential(y, inside, sink=sink)
    b, c = breadth(ingredients(y, inside, outside, sink=sink)), value_scale(values, sink=sink)
    there = b > 0 and (scale == "raw" or c > 0)
    steep = [steepness(kappa, values.shape[1], b, c, scale) if there else np.nan for kappa in kappas]
    parts = [inside[start : start + 64] for start in range(0, size, 64)]  # no matrix of all pairs
    return [
        np.concatenate([p((g[outside] - g[part][:, None]) * factor).max(axis=1) for part in parts]) for factor in steep
    ]


def row(
    weights: np.ndarray,
    values: np.ndarray,
    size: int,
    *,
    kappas: Kappas = (0.5,),
    scale: str = "unit",
    sink: bool = True,
) -> dict[str, np.ndarray]:
    """Every quantity of a selection profile of one head, for N = size alone; upper bounds by κ."""
    weights, values = np.asarray(weights, np.float64), np.asarray(values, np.float64)
    inside, outside = split(weights, size)
    last, y = len(weights) - 1, weights[:, None] * values
    k_in, k_out = counts(weights, y.tolist(), size)
    s = y[inside].sum(axis=0)
    distance = np.sqrt(((s - y) ** 2).sum(axis=1))
    worst = largest_p(weights, values, size, kappas, scale, sink=sink)
    return ingredients(y, inside, outside, sink=sink) | {
        "k_in": k_in,
        "k_out": k_out,
        "r_min": distance[outside].min(),
        "r_max": distance[inside].max(),
        "norm_s": np.linalg.norm(s),
        "norm_s_without_sink": np.linalg.norm(y[[i for i in inside if i != 0]].sum(axis=0)) if sink else np.nan,
        "norm_s_without_last": np.linalg.norm(y[[i for i in inside if i != last]].sum(axis=0)),
        "distance_rest": np.linalg.norm(y[outside].sum(axis=0) - s),
        "cos_sink": cosine(s, values[0]) if sink else np.nan,
        "cos_last": cosine(s, values[last]),
        "rho_out": closest(values, inside, outside, sink=sink),
        "precision_upper": np.array([precision_bound(of_kappa) for of_kappa in worst]),
        "recall_upper": np.array([recall_bound(of_kappa, inside, sink=sink) for of_kappa in worst]),
    }


def profile(
    weights: np.ndarray,
    values: np.ndarray,
    *,
    kappas: Kappas = (0.5,),
    scale: str = "unit",
    sink: bool = True,
    sizes: Sequence[int] | None = None,
) -> dict[str, np.ndarray]:
    """Every quantity of a selection profile of one head: weights (n,), values (n, d) → arrays (n − 1,), (K, n − 1).

    ``sizes``: the N wanted, instead of all.
    """
    wanted = range(1, len(weights)) if sizes is None else sizes
    rows = [row(weights, values, size, kappas=kappas, scale=scale, sink=sink) for size in wanted]
    found = {name: np.stack([row[name] for row in rows], axis=-1) for name in rows[0]}
    found["value_scale"] = np.array(value_scale(np.asarray(values, np.float64), sink=sink))
    found["weight_sum"] = np.array(sum(float(weight) for weight in weights))
    return found


# The counts of long heads.


def sure_counts(weights: np.ndarray, values: np.ndarray, sizes: Sequence[int] | None = None) -> Counts:
    """Counts of every N, or of some, from float64 energies; comparisons that float64 cannot decide are made in exact
    integers. For weights and values of float32 or shorter types.
    """
    assert all(array.dtype in (np.float16, np.float32) for array in (weights, values))
    order = np.argsort(-weights.astype(np.float64), kind="stable")
    y = (weights.astype(np.float64)[:, None] * values.astype(np.float64))[order] + 0.0  # no zero is negative
    a = np.linalg.norm(y, axis=1)
    s, reach, exact = np.cumsum(y, axis=0), np.cumsum(a), Exact(weights[order], values[order], y)
    parts = []
    wanted = np.arange(1, len(y)) if sizes is None else np.asarray(sizes)
    for start in range(0, len(wanted), 128):
        size = wanted[start : start + 128]
        energy = a * a - 2 * (s[size - 1] @ y.T)
        error = 2.0**-50 * sum(y.shape) * a * (a + reach[size - 1][:, None])
        low, high = energy - error, energy + error
        fewest, most = count_within(low, high, np.arange(len(y)) < size[:, None])
        for index in np.flatnonzero((fewest != most).any(axis=0)):
            fewest[:, index] = exact.counts(int(size[index]), low[index], high[index])
        parts.append(fewest)
    k_in, k_out = np.concatenate(parts, axis=1)
    return {"k_in": k_in, "k_out": k_out}


def count_within(low: np.ndarray, high: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The fewest and the most that (K_in, K_out) can be, from ends of the energies; ``inside``: which keys are
    selected, (N, n) each.
    """
    near = [np.where(inside, np.inf, end).min(axis=-1, keepdims=True) for end in (low, high)]
    far = [np.where(inside, end, -np.inf).max(axis=-1, keepdims=True) for end in (low, high)]
    fewest, most = (
        np.stack([(inside & (first <= nearest)).sum(axis=-1), (~inside & (first <= farthest)).sum(axis=-1)])
        for first, nearest, farthest in ((high, near[0], far[0]), (low, near[1], far[1]))
    )
    return fewest, most


class Exact:
    """A head in integers, keys in order of falling weight: every float32 is a multiple of 2⁻¹⁴⁹."""

    def __init__(self, weights: np.ndarray, values: np.ndarray, y: np.ndarray) -> None:
        self.weights, self.values, self.y = weights, values, y

    @cached_property
    def whole(self) -> np.ndarray:
        """y times 2²⁹⁸."""
        integer = np.vectorize(lambda x: int(np.ldexp(float(x), 149)), otypes=[object])
        return integer(self.weights)[:, None] * integer(self.values)

    @cached_property
    def sums(self) -> np.ndarray:
        """The same of s_N."""
        return np.cumsum(self.whole, axis=0)

    def counts(self, size: int, low: np.ndarray, high: np.ndarray) -> tuple[int, int]:
        """Counts of N = size, given what energies are surely not below and not above."""
        known: dict[bytes, int] = {}

        def energy(key: int) -> int:
            token = self.y[key].tobytes()
            if token not in known:
                known[token] = (self.whole[key] * (self.whole[key] - 2 * self.sums[size - 1])).sum()
            return known[token]

        inside = np.arange(len(low)) < size
        near, far = high[~inside].min(), low[inside].max()
        nearest = min(map(energy, np.flatnonzero(~inside & (low <= near))))
        farthest = max(map(energy, np.flatnonzero(inside & (high >= far))))
        sure_in, sure_out = inside & (high < low[~inside].min()), ~inside & (high < far)
        open_in = inside & ~sure_in & (low <= near)
        open_out = ~inside & ~sure_out & (low <= high[inside].max())
        k_in = sure_in.sum() + sum(energy(key) <= nearest for key in np.flatnonzero(open_in))
        k_out = sure_out.sum() + sum(energy(key) <= farthest for key in np.flatnonzero(open_out))
        return int(k_in), int(k_out)
