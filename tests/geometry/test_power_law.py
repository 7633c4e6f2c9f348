"""Slopes on two logarithmic axes against SciPy, refits without a cluster, and intervals of simulated studies."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from geometry.statistics.power_law import PowerLaw, fit_log_log


def points(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """y = 3 x^−0.4 under noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(1, 500, n)
    return x, 3 * x**-0.4 * np.exp(0.3 * rng.standard_normal(n))


@pytest.mark.parametrize("n", [3, 10, 500])
def test_independent_points_are_those_of_linregress(n: int) -> None:
    x, y = points(n, n)
    fit, wanted = fit_log_log(x, y), stats.linregress(np.log(x), np.log(y))
    assert (fit.slope, fit.slope_se) == pytest.approx((wanted.slope, wanted.stderr), rel=1e-9)
    assert (fit.intercept, fit.intercept_se) == pytest.approx((wanted.intercept, wanted.intercept_stderr), rel=1e-9)
    assert fit.r2 == pytest.approx(wanted.rvalue**2, rel=1e-9)
    assert (fit.status, fit.points, fit.left_out, fit.clusters, fit.degrees_of_freedom) == ("ok", n, 0, 0, n - 2)


def test_a_power_law_is_found_exactly() -> None:
    x = np.array([31.0, 63, 127, 255, 511])
    fit = fit_log_log(x, 2.5 * x**1.5)
    assert (fit.slope, fit.intercept, fit.r2) == pytest.approx((1.5, math.log(2.5), 1.0), rel=1e-12)
    assert max(fit.slope_se, fit.intercept_se) < 1e-13


def test_units_change_the_intercept_alone() -> None:
    x, y = points(40, 1)
    a, b = fit_log_log(x, y), fit_log_log(x, y * 1e-200)
    assert (b.slope, b.slope_se, b.r2) == pytest.approx((a.slope, a.slope_se, a.r2), rel=1e-9)
    assert b.intercept - a.intercept == pytest.approx(-200 * math.log(10))


@pytest.mark.parametrize("clusters", [2, 3, 15])
def test_clusters_are_left_out_one_by_one(clusters: int) -> None:
    x, y = points(60, clusters)
    cluster = 7 + np.random.default_rng(0).permutation(np.arange(60) % clusters)  # any numbers, in any order
    fit, parts = fit_log_log(x, y, cluster), []
    for left_out in np.unique(cluster):
        rest = fit_log_log(x[cluster != left_out], y[cluster != left_out])
        parts.append((rest.slope - fit.slope, rest.intercept - fit.intercept))
    wanted = np.sqrt((clusters - 1) / clusters * np.square(parts).sum(axis=0))
    assert (fit.slope_se, fit.intercept_se) == pytest.approx(tuple(wanted), rel=1e-8)
    whole = fit_log_log(x, y)
    assert (fit.slope, fit.intercept, fit.r2) == (whole.slope, whole.intercept, whole.r2)
    assert (fit.clusters, fit.degrees_of_freedom) == (clusters, clusters - 1)


def test_a_cluster_twice_is_no_more_evidence() -> None:
    """Each point three times within its cluster: the same error, though ordinary least squares believes more."""
    x, y = points(40, 5)
    cluster = np.arange(40) % 8
    once = fit_log_log(x, y, cluster)
    thrice = fit_log_log(np.repeat(x, 3), np.repeat(y, 3), np.repeat(cluster, 3))
    assert thrice.slope_se == pytest.approx(once.slope_se, rel=1e-9)
    assert fit_log_log(np.repeat(x, 3), np.repeat(y, 3)).slope_se < 0.7 * fit_log_log(x, y).slope_se


def covered(*, clustered: bool, studies: int = 600, sequences: int = 12) -> tuple[float, float]:
    """Share of 95 % intervals of slope and intercept that hold what was planted.

    Every sequence has its own level and its own slope, around those planted, on a log grid of N.
    """
    x, hits = np.geomspace(1, 511, 20), []
    cluster = np.repeat(np.arange(sequences), x.size).reshape(sequences, -1)
    for study in range(studies):
        rng = np.random.default_rng(study)
        level = 0.5 + 0.3 * rng.standard_normal((sequences, 1))
        slope = -0.4 + 0.1 * rng.standard_normal((sequences, 1))
        y = np.exp(level + slope * np.log(x) + 0.1 * rng.standard_normal((sequences, x.size)))
        fit = fit_log_log(x, y, cluster if clustered else None)
        t = stats.t.ppf(0.975, fit.degrees_of_freedom)
        hits.append((abs(fit.slope + 0.4) <= t * fit.slope_se, abs(fit.intercept - 0.5) <= t * fit.intercept_se))
    slope_hits, intercept_hits = np.mean(hits, axis=0)
    return float(slope_hits), float(intercept_hits)


def test_intervals_over_clusters_hold_what_was_planted() -> None:
    assert all(0.93 <= share <= 0.98 for share in covered(clustered=True))


def test_intervals_of_independent_points_do_not() -> None:
    """Mutation control of the test above."""
    assert max(covered(clustered=False, studies=200)) < 0.8


def test_shapes_broadcast() -> None:
    x, cluster = np.array([1.0, 10, 100]), np.arange(4)[:, None]
    y = x**0.5 * np.exp(0.1 * np.random.default_rng(0).standard_normal((4, 3)))
    fit = fit_log_log(x, y, cluster)
    flat = fit_log_log(np.tile(x, 4), y.ravel(), np.repeat(np.arange(4), 3))
    assert fit == flat
    assert (fit.points, fit.clusters) == (12, 4)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_has_no_logarithm_is_left_out_and_counted(bad: float) -> None:
    x, y = points(30, 2)
    wanted = fit_log_log(x[2:], y[2:])
    y[0], x[1] = bad, bad
    fit = fit_log_log(x, y)
    assert (fit.slope, fit.slope_se, fit.points, fit.left_out) == (wanted.slope, wanted.slope_se, 28, 2)
    cluster = np.where(np.arange(30) < 5, -1, np.arange(30) % 4)
    assert fit_log_log(x, y, cluster).left_out == 5


def unknown(fit: PowerLaw) -> bool:
    return bool(np.isnan([fit.slope, fit.slope_se, fit.intercept, fit.intercept_se, fit.r2]).all())


@pytest.mark.parametrize(
    ("x", "y", "status"),
    [
        ([], [], "too_few"),
        ([2.0], [3.0], "too_few"),
        ([2.0, 3.0], [0.0, 1.0], "too_few"),
        ([2.0, 2.0, 2.0], [1.0, 2.0, 3.0], "one_x"),
        ([1.0, 1.0], [1.0, 2.0], "one_x"),
    ],
)
def test_points_without_a_line_have_a_status(x: list[float], y: list[float], status: str) -> None:
    fit = fit_log_log(x, y)
    assert fit.status == status
    assert unknown(fit)
    assert unknown(fit_log_log(x, y, np.zeros(len(x), int)))


def test_errors_that_cannot_be_told_are_nan() -> None:
    two = fit_log_log([1.0, 10.0], [1.0, 100.0])
    assert two.slope == pytest.approx(2.0)
    assert np.isnan([two.slope_se, two.intercept_se]).all()
    one = fit_log_log([1.0, 10.0, 100.0], [1.0, 3.0, 5.0], [4, 4, 4])
    assert math.isfinite(one.slope)
    assert math.isnan(one.slope_se)
    hanging = fit_log_log([1.0, 1.0, 10.0], [1.0, 2.0, 5.0], [0, 0, 1])  # without cluster 1 there is one x
    assert math.isfinite(hanging.slope)
    assert math.isnan(hanging.slope_se)
    assert math.isnan(fit_log_log([1.0, 2.0, 3.0], [5.0, 5.0, 5.0]).r2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], [1.0, 2.0, 3.0]), "must broadcast"),
        (([1.0, 2.0], [1.0, 2.0], [0, 1, 2]), "must broadcast"),
        (([1.0, 2.0], [1.0, 2.0], [0.5, 1.0]), "cluster must be whole numbers"),
        (([1.0, 2.0], [1.0, 2.0], [-2, 1]), "cluster must be whole numbers"),
    ],
)
def test_what_is_no_set_of_points_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_log_log(*arguments)
