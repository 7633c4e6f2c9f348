"""Intervals over sequences and heads: weighted statistics beside slow ones, coverage, threads and memory."""

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

from geometry.statistics import resampling
from geometry.statistics.resampling import (
    GROUPS,
    Resampling,
    assign_groups,
    compute_log_weights,
    correlation_over_heads,
    estimate_means_bytes,
    jackknife_interval,
    linearise,
    mean_over_heads,
    median_over_heads,
    percentile_interval,
    resample,
    weighted_means,
)

S, G, H, R = 7, 3, 6, 20
CLUSTERS = np.arange(H) // 2


def drawn() -> Resampling:
    return resample(S, G, R, seed=3)


def with_gaps(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers, some of them NaN."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < 0.2, np.nan, rng.standard_normal(shape))


def repeated(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Values along the first axis, each as often as it is drawn, without NaN."""
    many = np.repeat(values, weights.astype(int), axis=0)
    return many[~np.isnan(many)]


def test_replicates_draw_as_many_as_there_are_and_the_first_is_the_data() -> None:
    found = drawn()
    for weights, count in ((found.sequences, S), (found.clusters, G)):
        assert weights.shape == (count, R + 1)
        assert (weights[:, 0] == 1).all()
        assert (weights.sum(axis=0) == count).all()
        assert (weights[:, 1:] != 1).any()
    assert found.units == G
    assert np.array_equal(found.count_head_draws(CLUSTERS)[4], found.clusters[2])
    again, other = drawn(), resample(S, G, R, seed=4)
    assert np.array_equal(again.sequences, found.sequences)
    assert not np.array_equal(other.sequences, found.sequences)


def test_draws_are_uniform_and_sequences_and_clusters_independent() -> None:
    many = resample(4, 4, 20_000)
    counts = many.sequences[:, 1:]
    assert np.bincount(counts.ravel().astype(int), minlength=5) / counts.size == pytest.approx(
        stats.binom.pmf(range(5), 4, 1 / 4), abs=0.01
    )
    assert np.corrcoef(counts[0], many.clusters[0, 1:])[0, 1] == pytest.approx(0, abs=0.03)


def test_means_are_those_of_what_is_drawn() -> None:
    values, weights = with_gaps(S, 4, 5), drawn().sequences
    values[:, 0, 0] = np.nan
    found = weighted_means(values, weights)
    assert found.shape == (4, 5, R + 1)
    for place in np.ndindex(4, 5):
        for replicate in range(R + 1):
            chosen = repeated(values[:, *place], weights[:, replicate])
            expected = chosen.mean() if chosen.size else math.nan
            assert found[*place, replicate] == pytest.approx(expected, nan_ok=True)
    assert np.array_equal(drawn().means(values), found, equal_nan=True)


def test_what_is_the_same_everywhere_is_so_in_every_replicate() -> None:
    constant = np.full((S, 3), 0.1 + 0.2)
    assert (weighted_means(constant, drawn().sequences) == 0.1 + 0.2).all()


def median(chosen: np.ndarray) -> float:
    return float(np.median(chosen))


@pytest.mark.parametrize(("statistic", "plain"), [(mean_over_heads, np.mean), (median_over_heads, median)])
def test_statistics_over_heads(statistic: Callable[..., np.ndarray], plain: Callable[..., float]) -> None:
    weights = drawn().count_head_draws(CLUSTERS)
    values = with_gaps(H, R + 1, seed=1)
    values[:, 5] = np.nan
    values[:4, 6] = 1.5  # ties
    found = statistic(values, weights)
    for replicate in range(R + 1):
        chosen = repeated(values[:, replicate], weights[:, replicate])
        assert found[replicate] == pytest.approx(plain(chosen) if chosen.size else math.nan, nan_ok=True)


def test_correlations_over_heads() -> None:
    weights = drawn().count_head_draws(CLUSTERS)
    x, y = with_gaps(2, H, R + 1, seed=2), with_gaps(H, R + 1, seed=3)
    found = correlation_over_heads(x, y, weights)
    known = 0
    for row, replicate in np.ndindex(found.shape):
        both = ~np.isnan(x[row, :, replicate] + y[:, replicate])
        times = weights[:, replicate].astype(int) * both
        pairs = np.repeat(np.column_stack([x[row, :, replicate], y[:, replicate]]), times, axis=0)
        if (times > 0).sum() < 3:
            assert np.isnan(found[row, replicate])
        else:
            known += 1
            assert found[row, replicate] == pytest.approx(stats.pearsonr(*pairs.T).statistic)
    assert known > R


def test_heads_that_are_alike_have_no_correlation() -> None:
    y = np.arange(H, dtype=float)[:, None]
    for alike in (np.zeros(H), np.full(H, 0.1), 1e9 + 1e-4 * np.arange(H)):
        assert np.isnan(correlation_over_heads(alike[:, None], y, np.ones((H, 1)))).all()
    assert correlation_over_heads(y, -3 * y, np.ones((H, 1))) == pytest.approx(-1)


def test_an_interval_is_the_percentiles_widened() -> None:
    rng = np.random.default_rng(0)
    replicates = np.concatenate([[0.1], rng.standard_normal(4000)])
    each = 1 - 0.05 / 20
    factor = stats.t.ppf((1 + each) / 2, 9) / stats.norm.ppf(0.975) * math.sqrt(10 / 9)
    low, high = np.quantile(replicates[1:], [0.025, 0.975])
    found = percentile_interval(replicates, units=10, family=20)
    assert (found.value, found.low, found.high) == pytest.approx(
        (0.1, 0.1 - factor * (0.1 - low), 0.1 + factor * (high - 0.1))
    )
    assert percentile_interval(replicates, units=10, family=20, domain=(-1, 2)).low == -1
    many = percentile_interval(replicates, units=10**6)
    assert (many.low, many.high) == pytest.approx((low, high), rel=1e-3)


def test_an_interval_reaches_to_rare_values() -> None:
    replicates = np.full(2001, 3.0)
    replicates[7:17] = 9.0  # 10 of 2000: no percentile at 95 %, but one at 99.8 %
    assert percentile_interval(replicates, units=50).high == 3
    assert percentile_interval(replicates, units=50, family=30).high == 9


@pytest.mark.parametrize(
    ("replicates", "units"),
    [(np.arange(9.0), 1), ([math.nan, *np.arange(9.0)], 9), ([1.0, math.nan, *np.arange(9.0)], 9)],
)
def test_no_interval(replicates: np.ndarray, units: int) -> None:
    found = percentile_interval(replicates, units=units)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = np.random.default_rng(1).standard_normal(12)
    without = np.array([np.delete(values, index).mean() for index in range(12)])
    error = values.std(ddof=1) / math.sqrt(12)
    found = jackknife_interval(values.mean(), without, family=4)
    reach = stats.t.ppf(1 - 0.05 / 8, 11) * error
    assert (found.low, found.high) == pytest.approx((values.mean() - reach, values.mean() + reach))
    both = jackknife_interval(values.mean(), without, without + 1, family=4)
    assert both.high - both.value == pytest.approx(math.sqrt(2) * reach)
    assert math.isnan(jackknife_interval(1.0, without, without[:1]).low)
    assert math.isnan(jackknife_interval(math.nan, without).low)


def test_linearised_replicates_of_a_mean_are_exact() -> None:
    rng = np.random.default_rng(2)
    values, weights = rng.standard_normal((10, 3)), resample(10, 1, R).sequences
    without = np.array([np.delete(values, index, axis=0).mean(axis=0) for index in range(10)])
    assert linearise(values.mean(axis=0), without, weights) == pytest.approx(weighted_means(values, weights))


def test_groups_are_even() -> None:
    assert np.bincount(assign_groups(23)).tolist() == [3, 3, 3, *[2] * (GROUPS - 3)]
    assert assign_groups(4).tolist() == [0, 1, 2, 3]


def test_cells_count_ln_n_evenly() -> None:
    grid = np.array([1, 2, 3, 5, 9, 20, 60])
    weights = compute_log_weights(grid, 2, 20)
    assert weights.sum() == pytest.approx(1)
    assert (weights[[0, 6]] == 0).all()
    fine = np.linspace(math.log(1.5), math.log(20.5), 200_001)
    nearest = np.abs(fine[:, None] - np.log(grid[1:6])).argmin(axis=1)
    assert weights[1:6] == pytest.approx(np.bincount(nearest) / fine.size, abs=1e-4)
    assert compute_log_weights([4], 4, 4).tolist() == [1]
    whole = np.arange(2, 1001)
    assert (compute_log_weights(whole, 2, 1000) * np.log(whole)).sum() == pytest.approx(
        math.log(math.sqrt(1.5 * 1000.5)), abs=0.01
    )


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        resample(0, 2)
    with pytest.raises(ValueError, match="as many weights, got 7"):
        weighted_means(np.zeros((3, 2)), drawn().sequences)
    with pytest.raises(ValueError, match="n must have a number from"):
        compute_log_weights([1, 2], 5, 9)
    for settings in ({"level": 1.0}, {"family": 0}):
        with pytest.raises(ValueError, match="level must be"):
            percentile_interval(np.arange(9.0), units=3, **settings)


SIMULATIONS = 300
SEQUENCES, GROUPS_OF_HEADS, HEADS = 12, 10, 20


def simulated(rng: np.random.Generator) -> np.ndarray:
    """A quantity of mean 0 with effects of sequences, KV groups and both: (sequence, head)."""
    groups = np.arange(HEADS) % GROUPS_OF_HEADS
    of_sequence, of_group = rng.standard_normal(SEQUENCES), rng.standard_normal(GROUPS_OF_HEADS)
    own = rng.standard_normal((SEQUENCES, HEADS))
    return of_sequence[:, None] + of_group[groups] + own


def covering(resampled: Resampling, family: int, *, heads: bool = True) -> float:
    """Share of simulations in which the interval of the mean holds the true mean, 0."""
    groups, held = np.arange(HEADS) % GROUPS_OF_HEADS, 0
    weights = resampled.count_head_draws(groups) if heads else np.ones((HEADS, resampled.sequences.shape[1]))
    for seed in range(SIMULATIONS):
        values = simulated(np.random.default_rng([seed, family]))
        replicates = mean_over_heads(resampled.means(values), weights)
        found = percentile_interval(replicates, units=resampled.units, family=family)
        held += found.low <= 0 <= found.high
    return held / SIMULATIONS


def test_intervals_hold_as_often_as_they_say() -> None:
    resampled = resample(SEQUENCES, GROUPS_OF_HEADS, 500)
    assert 0.92 <= covering(resampled, 1) <= 0.99
    assert covering(resampled, 30) >= 0.99


def test_intervals_over_sequences_alone_hold_too_seldom() -> None:
    assert covering(resample(SEQUENCES, GROUPS_OF_HEADS, 500), 1, heads=False) < 0.9


def test_intervals_without_the_widening_hold_too_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "_student_quantile", lambda _, level: float(stats.norm.ppf((1 + level) / 2)))
    few = resample(4, 4, 500)
    held = 0
    for seed in range(SIMULATIONS):
        values = np.random.default_rng(seed).standard_normal((4, 1))
        replicates = mean_over_heads(few.means(values), np.ones((1, 501)))
        found = percentile_interval(replicates, units=4)
        held += found.low <= 0 <= found.high
    assert held / SIMULATIONS < 0.92


def test_numbers_do_not_depend_on_threads() -> None:
    values = np.random.default_rng(0).standard_normal((64, 300, 20)).astype(np.float32)
    resampled = resample(64, 8, 200)
    found = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            found.append((resampled.means(values), linearise(values[0], values.astype(float), resampled.sequences)))
    assert all(np.array_equal(one, two) for one, two in zip(*found, strict=True))


def test_memory_is_bounded() -> None:
    values, weights = np.random.default_rng(0).standard_normal((50, 400)), resample(50, 1, 400).sequences
    weighted_means(values, weights)
    tracemalloc.start()
    weighted_means(values, weights)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= estimate_means_bytes(50, 400, 400)
    assert peak >= estimate_means_bytes(50, 400, 400) / 4
