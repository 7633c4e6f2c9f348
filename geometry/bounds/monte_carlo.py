"""Monte Carlo tests of the bounds in expectation and of Table 1, on heads drawn from the paper's assumptions.

Holds the comparison of each bound with the mean of the quantity that it bounds, and the changes of one parameter at a
time. Functions that return rows return a list of dicts from column to value, None for missing values; the tables
``bounds_in_expectation`` and ``parameter_effects`` describe the columns. Settings are checked: 2 draws at least, and
every N within 1 … n − 1, or a ValueError says which is not.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, repeat, takewhile
from typing import Any

import numpy as np
from scipy import special

from geometry.arrays import F64, Bool
from geometry.assumptions.assumed import AssumedHead, draw_values, weight_profile
from geometry.bounds import lower
from geometry.bounds.lower import INGREDIENTS, Ingredients
from geometry.bounds.scale_free import scale_free_lower_bounds
from geometry.selection.profile import Scale, selection_profile
from geometry.threads import one_blas_thread

Row = dict[str, Any]

STANDARD_ERRORS = 3.0
"""An inequality between means fails if it is violated by more than this many standard errors of the difference."""

LEAST_CHANGE = 1e-9  # Changes of ln miss below this are attributed to rounding
RATES = tuple(2.0 ** (step / 2) for step in range(-4, 7))  # β that `find_premise_point` tries, from 1/4 to 8

MOST_DIM = 1024
"""Largest d that ``find_premise_point`` tries: in few dimensions, some of many directions are always similar."""

LEAST_DRAWS = 4  # Heads that `find_premise_point` draws at each point

PARAMETERS_OF_WEIGHTS: Mapping[str, Any] = {"eta": 0.0, "eta_growth": 0.0, "omega": 1.0, "t_1": 0, "t_2": 0}
"""Parameters that only affect ``weight_profile``, with values at which they have no effect."""

_ARROWS = {"d": 1, "L": -1, "a_0": 1, "a_min_in": 1, "a_max_out": -1, "beta": 1}

PAPER_EFFECTS: Mapping[str, int | None] = {
    name: _ARROWS.get(name)
    for name in ("d", "L", "N", "a_0", "a_min_in", "a_max_out", "beta", "eta", "omega", "T_1", "T_2")
}
"""The arrows of Table 1 for a parameter that grows: 1 improves the lower bounds, −1 weakens them, None is mixed."""


@dataclass(frozen=True)
class Draws:
    """Heads drawn from one set of parameters, for some N; arrays (draws, N)."""

    precision: F64
    recall: F64
    ingredients: Ingredients
    upper: Mapping[tuple[str, float], tuple[F64, ...]]  # Upper bounds of Precision and Recall by scale and κ


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """One family of bounds on the heads of ``Draws``; arrays that broadcast against (draws, N), NaN for no bound."""

    family: str
    meets_assumptions: Bool  # Whether the assumptions of the family hold, (N,)
    lower: Mapping[str, F64]  # By `precision` and `recall`
    upper: Mapping[str, F64] = field(default_factory=dict)
    premise: F64 | float = math.nan  # 1 where Δ > 0, 0 elsewhere
    kappa: float | None = None
    scale: str | None = None


@one_blas_thread
def compare_bounds(
    assumed: AssumedHead,
    n: int,
    head_dim: int,
    *,
    draws: int,
    seed: int,
    sizes: Sequence[int],
    kappas: Sequence[float] = (0.5,),
    scales: Sequence[Scale] = ("unit", "raw"),
) -> list[Row]:
    """Compare mean Precision and Recall of heads drawn at one grid point with the means of their bounds.

    A row for each N of ``sizes`` and family: ``printed`` for each κ and scale; ``scale_free``; ``correlated``, the
    union over pairs of keys for Gaussian directions with the assumed mean cosines. A gap is the mean minus the lower
    bound, or the upper bound minus the mean; it holds above −3 standard errors of the difference. One head is in memory
    at a time; draws depend only on the seed and the grid point.
    """
    _check(draws, sizes, n)
    random = _make_seed(assumed, n, head_dim, seed)
    drawn = draw(assumed, n, head_dim, draws=draws, random=random, sizes=sizes, kappas=kappas, scales=scales)
    of_head = assumed, n, head_dim, sizes
    families = [compute_printed_bounds(drawn, *of_head, kappa, scale) for scale in scales for kappa in kappas]
    families += [compute_scale_free_bounds(*of_head), compute_correlated_bounds(*of_head)]
    shown = {name: getattr(assumed, name) for name in ("beta", "lambda_sink", "rho_0")}
    return [
        {"head_dim": head_dim, "n_keys": n, "n": size} | shown | describe_bounds(drawn, bounds, index)
        for bounds in families
        for index, size in enumerate(sizes)
    ]


@one_blas_thread
def measure_parameter_effects(
    assumed: AssumedHead, n: int, head_dim: int, size: int, *, kappa: float, scale: Scale, draws: int, seed: int
) -> list[Row]:
    """Measure the effects of Table 1 on drawn heads: of one parameter on the printed lower bounds, all others fixed.

    A row for each parameter, from half to twice its base value within its domain (``iterate_changes``). The effect is
    the sign of the change of the lower bounds as the parameter grows, from ln miss, which still varies where the bounds
    have reached 0 or 1; 0 if it changes by no more than 3 standard errors, None if a bound does not exist or nothing
    was changed. It agrees with the arrow of Table 1 or not, unless that is mixed or the parameter is ``untested``.
    """
    _check(draws, [size], n)
    base = Setting(assumed, n, head_dim, size)
    random = _make_seed(assumed, n, head_dim, seed)
    changes = list(iterate_changes(base))
    parts = _draw_ingredients([end for change in changes for end in (change.at_low, change.at_high)], draws, random)
    ends = {setting: _evaluate_end(of_end, setting, kappa, scale) for setting, of_end in parts.items()}
    given = {"n": size, "kappa": kappa, "scale": scale, "draws": draws}
    return [
        {"parameter": change.parameter} | given | _compare_ends(change, ends[change.at_low], ends[change.at_high])
        for change in changes
    ]


@one_blas_thread
def find_premise_point(assumed: AssumedHead, n: int, head_dim: int, *, seed: int) -> tuple[AssumedHead, int, int]:
    """Find parameters, d and N within the premise of the theorems, Δ > 0; elsewhere few parameters have an effect.

    First β is increased along ``RATES``, then d is doubled up to ``MOST_DIM``, until some N above 1 has Δ > 0 in every
    draw; of several N, the one with the largest mean Δ/B. If there is no such point, the given one and the least N.
    """
    sizes = np.unique(np.geomspace(min(2, n - 1), n - 1, 24).astype(int))
    rates = [assumed.beta, *(rate for rate in RATES if rate > assumed.beta)]
    dims = takewhile(lambda dim: dim <= MOST_DIM, accumulate(repeat(2 * head_dim), lambda dim, _: 2 * dim))
    for dim, beta in [*((head_dim, rate) for rate in rates), *((dim, rates[-1]) for dim in dims)]:
        tried, random = replace(assumed, beta=beta), np.random.SeedSequence(seed)
        parts = draw(tried, n, dim, draws=LEAST_DRAWS, random=random, sizes=sizes.tolist()).ingredients
        margins = lower.margin(parts)
        if (always := (margins > 0).all(axis=0)).any():
            return tried, dim, int(sizes[np.argmax(np.where(always, margins.mean(axis=0), -np.inf))])
    return assumed, head_dim, int(sizes[0])


def draw(
    assumed: AssumedHead,
    n: int,
    head_dim: int,
    *,
    draws: int,
    random: np.random.SeedSequence,
    sizes: Sequence[int],
    kappas: Sequence[float] = (),
    scales: Sequence[Scale] = ("raw",),
) -> Draws:
    """Draw heads and compute their Precision, Recall, ingredients and upper bounds; as for ``compare_bounds``."""
    rng, weights, at = np.random.default_rng(random), weight_profile(assumed, n), np.asarray(sizes) - 1
    parts: dict[str, list[F64]] = {name: [] for name in ("precision", "recall", *INGREDIENTS)}
    upper: dict[tuple[str, float], list[F64]] = {(scale, kappa): [] for scale in scales for kappa in kappas}
    for _ in range(draws):
        values = draw_values(assumed, n, head_dim, rng)
        for scale in scales:
            profile = selection_profile(weights, values, kappas=kappas, scale=scale)
            for index, kappa in enumerate(kappas):
                bounds = profile.precision_upper[index, at], profile.recall_upper[index, at]
                upper[scale, kappa].append(np.stack(bounds))
        for name, rows in parts.items():
            rows.append(getattr(profile, name)[at])
    found = {name: np.stack(rows) for name, rows in parts.items()}
    of_bounds = {key: tuple(np.stack(rows, axis=1)) for key, rows in upper.items()}
    return Draws(found.pop("precision"), found.pop("recall"), Ingredients(**found), of_bounds)


def compute_printed_bounds(
    drawn: Draws, assumed: AssumedHead, n: int, head_dim: int, sizes: Sequence[int], kappa: float, scale: Scale
) -> Bounds:
    """The bounds of Theorems 1 and 2 for each drawn head; the assumption is Δ > 0 in every draw."""
    parts, unit = drawn.ingredients, assumed.value_scale if scale == "unit" else 1.0
    bounds = lower.lower_bounds(parts, size=sizes, n_keys=n, head_dim=head_dim, kappa=kappa, unit=unit)
    delta = lower.delta(parts)
    premise = np.where(np.isnan(delta), np.nan, delta > 0)
    return Bounds(
        family="printed",
        meets_assumptions=(premise == 1).all(axis=0),
        lower=dict(zip(("precision", "recall"), bounds, strict=True)),
        upper=dict(zip(("precision", "recall"), drawn.upper[scale, kappa], strict=True)),
        premise=premise,
        kappa=kappa,
        scale=scale,
    )


def compute_scale_free_bounds(assumed: AssumedHead, n: int, head_dim: int, sizes: Sequence[int]) -> Bounds:
    """The bounds of ``geometry.bounds.scale_free``, which need independent directions and do not depend on draws."""
    bounds, at = scale_free_lower_bounds(weight_profile(assumed, n), norms(assumed, n), head_dim), np.asarray(sizes) - 1
    met = np.full(len(sizes), np.isinf(assumed.beta) and assumed.rho_0 == 0)
    values = {"precision": bounds.precision_lower[at], "recall": bounds.recall_lower[at]}
    return Bounds(family="scale_free", meets_assumptions=met, lower=values)


def compute_correlated_bounds(assumed: AssumedHead, n: int, head_dim: int, sizes: Sequence[int]) -> Bounds:
    """The bounds by a union over pairs for Gaussian directions with the assumed mean cosines as correlations.

    Their assumption never holds: directions are unit vectors, not Gaussian.
    """
    weights = weight_profile(assumed, n)
    order = np.argsort(-weights, kind="stable")
    a = (weights * norms(assumed, n))[order]
    products = a[:, None] * mean_cosines(assumed, n)[np.ix_(order, order)] * a
    precision, recall = np.array([bound_by_pair_union(products, size, head_dim) for size in sizes]).T
    values = {"precision": precision, "recall": recall}
    return Bounds(family="correlated", meets_assumptions=np.zeros(len(sizes), np.bool_), lower=values)


def norms(assumed: AssumedHead, n: int) -> F64:
    """Norms of the value states (Assumption 1), (n,)."""
    lengths = np.full(n, assumed.value_scale)
    lengths[0] *= assumed.lambda_sink
    return lengths


def mean_cosines(assumed: AssumedHead, n: int) -> F64:
    """Mean cosines of the value states that ``draw_values`` draws, (n, n), up to O(1/d)."""
    position = np.arange(n)
    with np.errstate(invalid="ignore"):  # ∞ · 0 on the diagonal
        decay = np.exp(-assumed.beta * np.abs(position - position[:, None]))
    floor = assumed.rho_0**2
    cosines: F64 = floor + (1 - floor) * decay
    cosines[0] = cosines[:, 0] = assumed.rho_0
    np.fill_diagonal(cosines, 1.0)
    return cosines


def bound_by_pair_union(products: F64, size: int, head_dim: int) -> tuple[float, float]:
    """Lower bounds of Precision and Recall from P(D_j ≤ D_i) of every pair, exact for Gaussian directions (note, 12).

    products: mean inner products of the y, keys in order of falling weight, (n, n).
    """
    n, diagonal = len(products), products.diagonal()
    centre = products[:size].sum(axis=0)
    square = centre[:size].sum()
    offset = diagonal - 2 * centre  # mean squared distances minus ‖c‖², which would cancel the digits of small keys
    outside, inside = offset[None, size:], offset[:size, None]
    gap = outside - inside  # P − Q
    apart = diagonal[None, size:] + diagonal[:size, None] - 2 * products[:size, size:]  # E‖p − q‖² = P + Q − 2M
    both = 2 * (2 * square + outside + inside) - apart  # E‖p + q‖² = P + Q + 2M
    root = np.sqrt(np.maximum(apart * both, gap**2))
    # λ₋/(λ₋ + λ₊); keys whose distances are the same in every draw pass each other
    share = np.divide(root - gap, 2 * root, out=np.ones_like(root), where=root > 0)
    passing = special.betainc(head_dim / 2, head_dim / 2, np.clip(share, 0.0, 1.0))
    expected = np.minimum(passing.sum(axis=0), 1.0).sum()
    missed = np.minimum(passing.sum(axis=1), 1.0).mean()
    return size / (size + min(expected, n - size)), 1.0 - missed


def describe_bounds(drawn: Draws, bounds: Bounds, index: int) -> Row:
    """The columns of one row that compare the bounds with the draws at the N of the given index."""
    shape = drawn.precision.shape
    row: Row = {
        "family": bounds.family,
        "kappa": bounds.kappa,
        "scale": bounds.scale,
        "draws": shape[0],
        "premise_share": _mean(np.broadcast_to(bounds.premise, shape)[:, index]),
        "meets_assumptions": bool(bounds.meets_assumptions[index]),
    }
    for name in ("precision", "recall"):
        measured = getattr(drawn, name)[:, index]
        low, high = (
            np.broadcast_to(side.get(name, math.nan), shape)[:, index] for side in (bounds.lower, bounds.upper)
        )
        row |= {name: float(measured.mean()), f"{name}_se": _standard_error(measured)}
        row |= {f"{name}_lower": _mean(low), f"{name}_upper": _mean(high)}
        row |= {f"{name}_lower_share": _compute_share(measured - low), f"{name}_gap": _mean(measured - low)}
        row |= {f"{name}_upper_share": _compute_share(high - measured), f"{name}_upper_gap": _mean(high - measured)}
        row |= {f"{name}_holds": _is_satisfied(measured - low), f"{name}_upper_holds": _is_satisfied(high - measured)}
    return row


@dataclass(frozen=True)
class Setting:
    """The parameters at which the lower bounds of Table 1 are computed."""

    assumed: AssumedHead
    n: int
    head_dim: int
    size: int
    factored: str | None = None  # Name of an ingredient that is multiplied by `factor`
    factor: float = 1.0

    def move(self, **changed: Any) -> "Setting":
        """The setting with other parameters, its own or those of the assumptions."""
        own = {name: changed.pop(name) for name in set(changed) & vars(self).keys()}
        return replace(self, assumed=replace(self.assumed, **changed), **own)

    @property
    def without_weights(self) -> "Setting":
        """The setting with the parameters of weights that have no effect."""
        return self.move(**PARAMETERS_OF_WEIGHTS)


@dataclass(frozen=True)
class Change:
    """The change of one parameter from low to high; ``base`` is its value while others change."""

    parameter: str
    base: float
    low: float
    high: float
    at_low: Setting
    at_high: Setting


def iterate_changes(base: Setting) -> Iterator[Change]:
    """Iterate over the changes of the parameters of Table 1, in its order.

    L, the number of keys except the sink, shortens or lengthens the plateau, so T_1 and T_2 move with the end of the
    context. η is that of the oscillation; that of the growth changes in proportion. T_1 and T_2 move halfway to their
    limits: position 0, each other, the last position. a_0, a_min_in and a_max_out are multiplied by 1/2 and by 2.
    """
    d, n, size, assumed = base.head_dim, base.n, base.size, base.assumed

    def change(parameter: str, name: str, low: float, high: float) -> Change:
        value: float = getattr(base if hasattr(base, name) else assumed, name)
        return Change(parameter, value, low, high, base.move(**{name: low}), base.move(**{name: high}))

    def lengthen(keys: int) -> Setting:
        return base.move(n=n + keys, t_1=assumed.t_1 + keys, t_2=assumed.t_2 + keys)

    yield change("d", "head_dim", max(2, d // 2), 2 * d)
    shorter = min(n // 2, assumed.t_1, n - 1 - size)
    yield Change("L", n - 1, n - 1 - shorter, 2 * n - 1, lengthen(-shorter), lengthen(n))
    yield change("N", "size", max(2, size // 2) if size > 1 else 1, min(2 * size, n - 1))
    for name in ("a_0", "a_min_in", "a_max_out"):
        yield Change(name, 1.0, 0.5, 2.0, *(base.move(factored=name, factor=factor) for factor in (0.5, 2.0)))
    yield change("beta", "beta", assumed.beta / 2, assumed.beta * 2)
    most = min(2.0, (1 + abs(assumed.eta)) / (2 * abs(assumed.eta))) if assumed.eta else 2.0
    ends = (base.move(eta=factor * assumed.eta, eta_growth=factor * assumed.eta_growth) for factor in (0.5, most))
    shown = assumed.eta or assumed.eta_growth  # without oscillation η is that of the growth
    yield Change("eta", shown, 0.5 * shown, most * shown, *ends)
    yield change("omega", "omega", assumed.omega / 2, min(2 * assumed.omega, np.pi))
    middle = (assumed.t_1 + assumed.t_2) // 2
    yield change("T_1", "t_1", assumed.t_1 // 2, middle)
    yield change("T_2", "t_2", middle, max(assumed.t_2, (assumed.t_2 + n - 1) // 2))


@dataclass(frozen=True)
class End:
    """One end of a change; arrays have one element per draw, (draws, 1)."""

    setting: Setting
    parts: Ingredients
    precision_lower: F64
    recall_lower: F64
    log_miss: F64


def _draw_ingredients(
    settings: Sequence[Setting], draws: int, random: np.random.SeedSequence
) -> dict[Setting, Ingredients]:
    """Ingredients of the heads drawn at each setting, (draws, 1); settings of the same value states share the draws."""
    groups: dict[tuple[AssumedHead, int, int], list[Setting]] = {}
    for setting in dict.fromkeys(settings):
        groups.setdefault((setting.without_weights.assumed, setting.n, setting.head_dim), []).append(setting)
    parts: dict[Setting, list[list[F64]]] = {}
    for (assumed, n, head_dim), alike in groups.items():
        rng, heads = np.random.default_rng(random), list(dict.fromkeys(setting.assumed for setting in alike))
        weights = np.stack([weight_profile(head, n) for head in heads])
        for _ in range(draws):
            profile = selection_profile(weights, draw_values(assumed, n, head_dim, rng), kappas=(), scale="raw")
            for setting in alike:
                at = heads.index(setting.assumed), [setting.size - 1]
                parts.setdefault(setting, []).append([getattr(profile, name)[at] for name in INGREDIENTS])
    return {
        setting: Ingredients(**dict(zip(INGREDIENTS, map(np.stack, zip(*drawn, strict=True)), strict=True)))
        for setting, drawn in parts.items()
    }


def _evaluate_end(parts: Ingredients, setting: Setting, kappa: float, scale: Scale) -> End:
    """Lower bounds of Precision and Recall, and ln miss, of every draw."""
    if setting.factored:
        parts = replace(parts, **{setting.factored: np.multiply(getattr(parts, setting.factored), setting.factor)})
    unit = setting.assumed.value_scale if scale == "unit" else 1.0
    given = {"size": setting.size, "n_keys": setting.n, "head_dim": setting.head_dim, "kappa": kappa, "unit": unit}
    return End(setting, parts, *lower.lower_bounds(parts, **given), lower.log_miss(parts, **given))


def _compare_ends(change: Change, low: End, high: End) -> Row:
    """The columns of Table 1 from both ends of a change."""
    row: Row = {"base": float(change.base), "low": float(change.low), "high": float(change.high)}
    for name in ("precision_lower", "recall_lower", "log_miss"):
        row |= {f"{name}_{which}": _mean(getattr(end, name)) for which, end in (("low", low), ("high", high))}
    fall = (low.log_miss - high.log_miss).ravel()
    a, b = change.at_low, change.at_high
    unchanged = a.without_weights == b.without_weights and np.array_equal(
        weight_profile(a.assumed, a.n), weight_profile(b.assumed, b.n)
    )
    effect = None if np.isnan(fall).any() or unchanged else _sign(fall)
    paper = PAPER_EFFECTS[change.parameter]
    compared = effect is not None and paper is not None
    untested = _explain_untested(change.parameter, low, high) if compared else None
    agrees = effect == paper if compared and not untested else None
    return row | {"effect": effect, "untested": untested, "paper_effect": paper, "agrees": agrees}


def _explain_untested(parameter: str, low: End, high: End) -> str | None:
    """Why a change does not test the paper's claim about a parameter: its term is absent or trivial at both ends."""
    margins, of_sink = (
        any((margin(end.parts) > 0).any() for end in (low, high)) for margin in (lower.delta, lower.delta_sink)
    )
    if parameter == "a_0":
        if np.isnan(np.asarray(low.parts.a_0)).all():
            return "the sink is not selected at this N"
        return None if of_sink else "Δ_0 is not above 0, so that the sink's term has its trivial value"
    by_chance = [math.sqrt(2 * math.log(end.setting.n) / end.setting.head_dim) for end in (low, high)]
    similar = [np.asarray(end.parts.rho_out).mean() > most for end, most in zip((low, high), by_chance, strict=True)]
    if parameter == "beta" and not any(similar):
        return "ρ_out is within what independent directions have by chance, so that β is not in the bounds"
    if parameter in {"a_min_in", "a_max_out"} and not margins:
        return "Δ is not above 0, so that its term has its trivial value"
    if parameter in {"d", "beta"} and not (margins or of_sink):
        return "neither Δ nor Δ_0 is above 0, so that the bounds have their trivial value"
    return None


def _sign(change: F64) -> int:
    """Sign of the mean of a change, 0 if it is within ``STANDARD_ERRORS`` or rounding."""
    mean = change.mean()
    return int(np.sign(mean)) if abs(mean) > STANDARD_ERRORS * _standard_error(change) + LEAST_CHANGE else 0


def _mean(array: F64) -> float | None:
    """The mean, or None if a draw has no value."""
    return None if np.isnan(array).any() else float(array.mean())


def _compute_share(gap: F64) -> float | None:
    """Share of draws whose gap is not negative, up to rounding."""
    return None if np.isnan(gap).any() else float((gap >= -LEAST_CHANGE).mean())


def _is_satisfied(gap: F64) -> bool | None:
    """Whether the mean of a gap is at most ``STANDARD_ERRORS`` standard errors below 0."""
    mean = _mean(gap)
    return None if mean is None else mean >= -STANDARD_ERRORS * _standard_error(gap) - LEAST_CHANGE


def _standard_error(array: F64) -> float:
    """Standard error of the mean over draws."""
    return float(array.std(ddof=1) / np.sqrt(len(array)))


def _check(draws: int, sizes: Sequence[int], n: int) -> None:
    """Raise a ValueError if the number of draws or the requested N are invalid."""
    if draws < 2:
        raise ValueError(f"draws must be at least 2 for a standard error, got {draws}")
    if not len(sizes) or not all(1 <= size < n for size in sizes):
        raise ValueError(f"sizes must be one or more numbers from 1 to {n - 1}, got {list(sizes)}")


def _make_seed(assumed: AssumedHead, n: int, head_dim: int, seed: int) -> np.random.SeedSequence:
    """The seed of one grid point, whose random numbers are independent of those of other points."""
    settings = np.array([*asdict(assumed).values(), n, head_dim], np.float64)
    return np.random.SeedSequence(seed, spawn_key=settings.view(np.uint32).tolist())
