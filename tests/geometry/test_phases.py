"""The fit of the four phases against the curve read literally, exhaustive searches and what was planted."""

import math
from typing import Any

import numpy as np
import pytest

from geometry.assumptions import phase_kernels, phases
from geometry.assumptions.assumed import AssumedHead, weight_profile
from geometry.assumptions.decay import effective_points
from geometry.assumptions.phase_kernels import cosine_sums, follow_starts
from geometry.assumptions.phases import PENALTIES, PHASE_VARIANTS, PhaseFit, PhaseVariant, fit_phases
from tests.geometry.draws import correlated_noise

PlantedHead = dict[str, Any]
NAMES = ("p_sink", "p_base", "eta", "eta_growth", "omega", "t_1", "t_2")


def literal(i: int, planted: PlantedHead) -> float:
    """Assumption 3, line by line."""
    if i == 0:
        return planted["p_sink"]
    if i <= planted["t_1"]:
        return planted["p_base"]
    if i <= planted["t_2"]:
        return planted["p_base"] * (1 + planted["eta"] * math.cos(planted["omega"] * i))
    return planted["p_base"] * math.exp(planted["eta_growth"] * (i - planted["t_2"]))


def plant(variant: PhaseVariant, n: int, rng: np.random.Generator, first: int = 0) -> PlantedHead:
    """Parameters of a variant over n positions from ``first`` on."""
    last = first + n - 1
    t_2 = last if variant == "plateau" else first + int(n * rng.uniform(0.6, 0.9))
    t_1 = t_2 if variant in {"plateau", "growth"} else first + int(n * rng.uniform(0.05, 0.3))
    rate = rng.uniform(2, 5) / max(last - t_2, 1)
    eta = rng.choice([-1, 1]) * rng.uniform(0.3, 0.9) if variant == "untied" else rate
    omega = math.exp(rng.uniform(math.log(4 * math.pi / max(t_2 - t_1, 5)), 1.1))
    values = (0.4, 3e-4, eta, rate, omega, t_1, t_2)
    return dict(zip(NAMES, values, strict=True))


def curve(positions: range, planted: PlantedHead) -> np.ndarray:
    return np.array([literal(i, planted) for i in positions])


def weights(planted: PlantedHead, n: int, noise: float, rng: np.random.Generator, first: int = 0) -> np.ndarray:
    """Weights of the curve, each times a lognormal factor."""
    return curve(range(first, first + n), planted) * np.exp(noise * rng.standard_normal(n))


def fitted(fit: PhaseFit) -> PlantedHead:
    return {name: getattr(fit, name) for name in NAMES}


def squares(weight: np.ndarray, planted: PlantedHead, first: int = 0) -> float:
    """Σ (log weight − log curve)² over the positions with weight but the sink, by the literal curve."""
    positions = [i for i in range(max(first, 1), first + len(weight)) if weight[i - first] > 0]
    return sum((math.log(weight[i - first]) - math.log(literal(i, planted))) ** 2 for i in positions)


def bic(rss: float, fit: PhaseFit, variant: PhaseVariant) -> float:
    return fit.effective_points * math.log(rss / fit.positions) + PENALTIES[variant] * math.log(fit.positions)


CASES = [(v, n, first, 10 * n) for v in PHASE_VARIANTS for n, first in ((64, 0), (64, 31), (200, 0))]


@pytest.mark.parametrize(("variant", "n", "first", "seed"), CASES)
def test_figures_follow_from_the_parameters(variant: PhaseVariant, n: int, first: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = weights(plant(variant, n, rng, first), n, 0.1, rng, first)
    weight[rng.permutation(np.arange(1, n))[: n // 10]] = 0
    fit = fit_phases(weight, first=first)
    assert fit.status == "ok"
    assert fit.variant is not None
    content = weight[1:] if first == 0 else weight
    with np.errstate(divide="ignore"):
        apart = np.log(content) - np.log(curve(range(max(first, 1), first + n), fitted(fit)))
    logs = np.log(content[content > 0])
    assert (fit.positions, fit.zero_positions) == (len(logs), n // 10)
    assert (fit.p_sink == weight[0]) == (first == 0)
    rss = squares(weight, fitted(fit), first)
    assert getattr(fit, f"bic_{fit.variant}") == pytest.approx(bic(rss, fit, fit.variant), rel=1e-9)
    assert fit.r2_log == pytest.approx(1 - rss / ((logs - logs.mean()) ** 2).sum(), abs=1e-9)
    assert fit.mae_log == pytest.approx(np.abs(apart[content > 0]).mean(), rel=1e-9)
    if fit.variant == "untied":  # the closest, whose residuals tell what positions are worth
        logs_apart = np.where(content > 0, apart, 0.0)
        assert fit.effective_points == pytest.approx(effective_points(logs_apart, content > 0), rel=1e-6)
    assert getattr(fit, f"bic_{fit.variant}") == np.nanmin([getattr(fit, f"bic_{v}") for v in PHASE_VARIANTS])
    assert excess(variant, n, first, seed) <= 1e-9  # no variant does worse than what was planted


def excess(variant: PhaseVariant, n: int, first: int, seed: int) -> float:
    """How far the fit of a variant lies above the planted curve of that variant, in units of BIC."""
    rng = np.random.default_rng(seed)
    planted = plant(variant, n, rng, first)
    weight = weights(planted, n, rng.uniform(0.05, 0.2) if variant != "tied" else 0.01, rng, first)
    fit = fit_phases(weight, first=first)
    return getattr(fit, f"bic_{variant}") - bic(squares(weight, planted, first), fit, variant)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("_find_starts", lambda *_: iter([(0.3, 1.0)])),
        ("_fit_growth", lambda search: None),  # noqa: ARG005
        ("find_best_edges", lambda z, *_: (z.size // 3, z.size // 2)),
        ("cosine_sums", lambda z, known, start, edges, out: cosine_sums(z, known, start + 9, edges, out)),
    ],
)
def test_a_search_that_misses_does_worse(monkeypatch: pytest.MonkeyPatch, name: str, broken: Any) -> None:
    """Mutation control of the test above."""
    monkeypatch.setattr(phases, "follow_starts", follow_starts.py_func)
    monkeypatch.setattr(phase_kernels if name == "find_best_edges" else phases, name, broken)
    found = [excess(*case) for case in CASES if case[0] != "plateau"]
    assert any(not excess <= 1e-9 for excess in found)


@pytest.mark.parametrize("variant", PHASE_VARIANTS)
def test_without_noise_the_planted_variant_is_found_exactly(variant: PhaseVariant) -> None:
    planted = plant(variant, 160, np.random.default_rng(3))
    fit = fit_phases(weights(planted, 160, 0, np.random.default_rng(0)))
    assert fit.variant == variant
    assert (fit.t_1, fit.t_2) == (planted["t_1"], planted["t_2"])
    for name in ("p_sink", "p_base", "eta", "eta_growth", "omega"):
        assert math.isnan(getattr(fit, name)) or getattr(fit, name) == pytest.approx(planted[name], rel=1e-6)
    absent = {"plateau": 3, "growth": 2}.get(variant, 0)
    assert sum(math.isnan(x) for x in (fit.eta, fit.eta_growth, fit.omega)) == absent
    assert np.isnan(fit.influence).all(axis=1).sum() == absent
    assert fit.mae_log < 1e-6


@pytest.mark.parametrize(("eta", "zeros"), [(0.4, 0), (-0.4, 5)])
def test_an_oscillation_to_the_last_position_leaves_no_growth(eta: float, zeros: int) -> None:
    """Positions behind it that have no weight (underflow) tell no more of a growth than none at all."""
    rng, x = np.random.default_rng(0), np.arange(256)
    weight = 1e-3 * np.where(x < 40, 1, 1 + eta * np.cos(0.3 * x)) * np.exp(0.05 * rng.standard_normal(256))
    weight[256 - zeros :] = 0
    fit = fit_phases(weight)
    assert (fit.status, fit.variant, fit.t_2) == ("ok", "tied", 255)
    assert abs(fit.t_1 - 39) <= 5
    assert (fit.eta, fit.omega) == pytest.approx((eta, 0.3), rel=0.05)
    assert math.isnan(fit.eta_growth)
    assert np.isnan(fit.influence).all(axis=1).tolist() == [False, False, True, False]
    assert np.isfinite(fit.influence[[0, 1, 3]]).all()
    np.testing.assert_allclose(curve(range(40, 251), fitted(fit)), 1e-3 * (1 + eta * np.cos(0.3 * x[40:251])), rtol=0.1)


@pytest.mark.parametrize("nested", [True, False])
def test_untied_fits_no_worse_than_tied(nested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of heads that tied fits with some growth, without which it is no case of untied; the control: without its end."""
    if not nested:
        monkeypatch.setattr(phases, "chain", lambda starts, _: starts)
    ratios = []
    for seed in range(1320, 1390):  # four phases under noise, which may bury them
        rng = np.random.default_rng(seed)
        n = int(rng.choice([40, 100, 200]))
        t_1, t_2 = np.sort(rng.integers(0, n, 2))
        eta, omega = rng.uniform(-0.95, 0.95), rng.uniform(0.1, 3.1)
        values = (0.4, 3e-4, eta, rng.choice([eta / 10, 0.02]), omega, int(t_1), int(t_2))
        content = weights(dict(zip(NAMES, values, strict=True)), n, rng.choice([0.02, 0.1, 0.3, 0.8]), rng)[1:]
        fits = phases._fit_variants(phases._prepare_search(content, content > 0, 1, least_edge=0))
        if "tied" in fits and fits["tied"].edges[1] < content.size:
            ratios.append(fits["untied"].rss / fits["tied"].rss)
    assert len(ratios) > 20
    assert max(ratios) <= 1 + 1e-9 if nested else max(ratios) > 1.001


def count_oscillating(*, oscillates: bool, heads: int = 16, sequences: int = 8) -> int:
    """How many heads drawn from Assumption 3 are taken to oscillate, n = 512: means over sequences of correlated noise.

    The noise's autocorrelation time is 4.5 positions; its deviation in one sequence is 0.3 on the log scale.
    """
    chosen = []
    for head in range(heads):
        rng = np.random.default_rng([head, oscillates])
        t_2 = int(512 * rng.uniform(0.6, 0.8))
        wave = {"eta": 0.3 * oscillates, "eta_growth": rng.uniform(0.01, 0.04), "omega": rng.uniform(0.1, 0.5)}
        t_1 = int(512 * rng.uniform(0.1, 0.2)) if oscillates else t_2
        assumed = AssumedHead(lambda_sink=0.2, beta=0.1, rho_0=0.0, p_sink=0.4, t_1=t_1, t_2=t_2, **wave)
        noise = np.exp([0.3 * correlated_noise(512, 4.5, rng) for _ in range(sequences)])
        chosen.append(fit_phases((weight_profile(assumed, 512) * noise).mean(axis=0)).variant)
    return sum(variant in {"tied", "untied"} for variant in chosen)


def test_an_oscillation_is_found_where_there_is_one_and_nowhere_else() -> None:
    assert count_oscillating(oscillates=False) <= 2
    assert count_oscillating(oscillates=True) >= 14


def test_residuals_taken_as_independent_pass_for_an_oscillation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation control of the test above."""
    monkeypatch.setattr(phases, "effective_points", lambda _, known: float(known.sum()))
    assert count_oscillating(oscillates=False) >= 14


@pytest.mark.parametrize("variant", ["tied", "untied"])
def test_no_pair_of_edges_does_better(variant: PhaseVariant) -> None:
    """Every T_1 and T_2 by linear least squares, for the η and ω of the fit."""
    rng = np.random.default_rng(6)
    weight = weights(plant(variant, 70, rng), 70, 0.1 if variant == "untied" else 0.02, rng)
    fit = fit_phases(weight)
    assert fit.variant == variant
    z, x = np.log(weight[1:]), np.arange(1, 70)
    wave, best = np.log1p(fit.eta * np.cos(fit.omega * x)), np.inf
    for t_2 in range(8, 70 if variant == "tied" else 69):
        for t_1 in range(t_2 - max(8, math.ceil(2 * math.pi / fit.omega)) + 1):
            y, growth = z - wave * ((x > t_1) & (x <= t_2)), np.maximum(x - t_2, 0)
            if variant == "tied":
                y, growth = y - fit.eta * growth, 0 * growth
            design = np.stack([np.ones(69), growth], axis=1)
            best = min(best, ((y - design @ np.linalg.lstsq(design, y)[0]) ** 2).sum())
    assert squares(weight, fitted(fit)) == pytest.approx(best, rel=1e-7)


@pytest.mark.one_case
@pytest.mark.parametrize("variant", PHASE_VARIANTS)
@pytest.mark.parametrize("first", [0, 9])
def test_influence_is_the_derivative(variant: PhaseVariant, first: int) -> None:
    rng = np.random.default_rng(6)
    noise = 0.01 if variant == "tied" else 0.1
    weight = weights(plant(variant, 64, rng, first), 64, noise, rng, first)
    weight[[20, 30]] = 0
    fit = fit_phases(weight, first=first)
    assert fit.variant == variant
    wanted = np.zeros((4, 64))
    for i in range(64):
        up, down = (weight * np.where(np.arange(64) == i, factor, 1) for factor in (math.exp(1e-3), math.exp(-1e-3)))
        a, b = (fit_phases(moved, first=first) for moved in (up, down))
        assert (a.t_1, a.t_2, b.t_1, b.t_2) == (fit.t_1, fit.t_2) * 2
        for row, name in enumerate(("p_base", "eta", "eta_growth", "omega")):
            high, low = (math.log(f.p_base) if row == 0 else getattr(f, name) for f in (a, b))
            wanted[row, i] = (high - low) / 2e-3
    for row, expected in zip(fit.influence, wanted, strict=True):
        np.testing.assert_allclose(row, expected, atol=1e-3 * np.nanmax(np.abs(expected), initial=0.0))
    assert np.nanmax(np.abs(fit.influence)) > 0.01


def test_at_the_highest_frequency_the_others_have_an_influence_and_omega_has_none() -> None:
    rng = np.random.default_rng(8)
    fit = fit_phases(weights(plant("plateau", 90, rng) | {"eta": -0.99, "omega": math.pi, "t_1": 0}, 90, 0.1, rng))
    assert (fit.omega, fit.t_1) == (math.pi, 0)
    assert fit.eta == pytest.approx(-0.99, abs=0.005)
    assert math.isnan(fit.eta_growth)  # the oscillation goes on to the end
    assert np.isnan(fit.influence).all(axis=1).tolist() == [False, False, True, True]


def rough_heads(n: int) -> dict[str, np.ndarray]:
    """Heads that look like no phase at all."""
    rng, i = np.random.default_rng(0), np.arange(n)
    noise = np.exp(0.3 * rng.standard_normal(n))
    return {
        "noisy power": noise * (n - i) ** -1.3,
        "last token": np.where(i == n - 1, 0.9, 1e-5) * noise,
        "every other": np.where(i % 2, 1.0, 1e-3) * noise,
        "heavy tails": np.exp(3 * rng.standard_normal(n)),
        "half zero": np.where(i < n // 2, 0.0, noise),
        "random zeros": np.where(rng.random(n) < 0.6, 0.0, noise),
        "walk": np.exp(np.cumsum(0.2 * rng.standard_normal(n))),
        "equal": np.full(n, 1 / n),
        "subnormal": 1e-310 * noise,
    }


@pytest.mark.parametrize(("n", "first"), [(24, 0), (150, 5)])
@pytest.mark.parametrize("kind", rough_heads(24))
def test_a_rough_head_is_a_row_within_its_domain(kind: str, n: int, first: int) -> None:
    fit = fit_phases(rough_heads(n)[kind], first=first)
    if (rough_heads(n)[kind][1:] > 0).sum() < 9:
        return
    assert fit.status == "ok"
    assert first <= fit.t_1 <= fit.t_2 <= first + n - 1
    assert fit.p_base > 0
    assert math.isfinite(fit.bic_plateau)
    assert math.isfinite(fit.mae_log)
    if fit.variant in {"tied", "untied"}:
        assert -1 < fit.eta < 1
        assert 2 * math.pi / (fit.t_2 - fit.t_1) <= fit.omega <= math.pi
    else:
        assert fit.t_1 == fit.t_2
        assert math.isnan(fit.eta)
        assert math.isnan(fit.omega)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 15, 17])
def test_short_contexts_have_a_status(n: int) -> None:
    for first, content in ((0, n - 1), (3, n)):
        fit = fit_phases(np.exp(np.random.default_rng(n).standard_normal(n)), first=first)
        assert fit.status == ("ok" if content >= 8 else "too_short")
        assert (fit.variant is None) == (content < 8)
        if content < 16:
            assert fit.variant in {None, "plateau", "growth"}


@pytest.mark.parametrize(
    ("weight", "status", "p_sink", "zeros"),
    [
        (np.eye(30)[0], "no_weight", 1.0, 29),
        (np.where(np.arange(30) < 8, 0.1, 0.0), "no_weight", 0.1, 22),
        (np.full(30, np.nan), "undefined", np.nan, 0),
        (np.full(3, 0.1), "too_short", 0.1, 0),
        (np.empty(0), "too_short", np.nan, 0),
    ],
)
def test_what_cannot_be_fitted_is_a_row_with_its_status(
    weight: np.ndarray, status: str, p_sink: float, zeros: int
) -> None:
    fit = fit_phases(weight)
    assert (fit.status, fit.variant, fit.t_1, fit.t_2, fit.zero_positions) == (status, None, None, None, zeros)
    assert fit.p_sink == pytest.approx(p_sink, nan_ok=True)
    rest = (fit.p_base, fit.eta, fit.eta_growth, fit.omega, fit.r2_log, fit.mae_log, fit.effective_points)
    assert np.isnan([*rest, *(getattr(fit, f"bic_{v}") for v in PHASE_VARIANTS)]).all()
    assert np.isnan(fit.influence).all()
    assert fit.influence.shape == (4, len(weight))


def test_a_window_hides_the_sink_and_moves_no_position() -> None:
    rng = np.random.default_rng(4)
    planted = plant("untied", 160, rng)
    weight = weights(planted, 160, 0.05, rng)
    whole, seen = fit_phases(weight), fit_phases(weight[10:], first=10)
    assert math.isnan(seen.p_sink)
    assert (seen.t_1, seen.t_2) == (whole.t_1, whole.t_2)
    assert seen.omega == pytest.approx(whole.omega, rel=1e-5)
    assert fit_phases(weight[10:]).omega != pytest.approx(whole.omega, rel=1e-5)  # else the test could not fail
