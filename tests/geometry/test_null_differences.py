"""Differences from a null and their intervals beside loops over replicates, and wrong readings that must be noticed."""

import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from geometry.statistics.null_differences import (
    ModelDifferences,
    estimate_difference_bytes,
    estimate_model_bytes,
    head_differences,
)
from geometry.statistics.resampling import Resampling, percentile_ends, percentile_interval, resample

S, R, MEASURES, GRID = 7, 200, 3, 5
LAYERS = {3: (2, GRID), 2: (4, 3)}
"""KV groups, and of each layer the heads in a group and the last N (one layer sees fewer keys)."""
GROUPS = sum(LAYERS)
RESAMPLED = resample(S, GROUPS, R)


def drawn_layers() -> list[tuple[np.ndarray, np.ndarray]]:
    """Measures of the selections and of a null of every layer, (sequence, group, head of the group, measure, N)."""
    rng, found = np.random.default_rng(0), []
    for groups, (heads, reach) in LAYERS.items():
        level = rng.uniform(0.2, 0.7, (1, groups, 1, MEASURES, 1))
        noise = rng.uniform(0, 0.3, (2, S, groups, heads, MEASURES, reach))
        found.append((level + noise[0], level * 0.9 + noise[1]))
    return found


def added(layers: list[tuple[np.ndarray, np.ndarray]], resampled: Resampling = RESAMPLED) -> ModelDifferences:
    model = ModelDifferences((MEASURES, GRID), resampled)
    for observed, null in layers:
        model.add(observed.sum(axis=2), null.sum(axis=2), observed.shape[2])
    return model


def replicates_of(layers: list[tuple[np.ndarray, np.ndarray]], measure: int, n: int) -> np.ndarray:
    """The differences of every replicate, one draw of sequences and groups after the other, (R + 1,)."""
    found = []
    for replicate in range(R + 1):
        sequences, first, terms = np.repeat(np.arange(S), RESAMPLED.sequences[:, replicate].astype(int)), 0, []
        for observed, null in layers:
            for group in range(observed.shape[1]):
                times = int(RESAMPLED.clusters[first + group, replicate])
                if n < observed.shape[-1]:
                    apart = (observed - null)[:, group, :, measure, n]
                    terms += [apart[sequences].ravel()] * times
            first += observed.shape[1]
        found.append(np.concatenate(terms).mean() if terms else math.nan)
    return np.array(found)


def test_ends_of_many_are_those_of_each() -> None:
    rng = np.random.default_rng(1)
    replicates = rng.normal(0.4, 0.3, (4, 2, 101))
    replicates[0, 0] = 0.25  # a statistic that never varies
    for how in ({"units": 5}, {"units": 3, "family": 4, "level": 0.9, "domain": (-0.1, 0.9)}):
        low, high = percentile_ends(replicates, **how)
        for place in np.ndindex(4, 2):
            alone = percentile_interval(replicates[place], **how)
            assert (low[place], high[place]) == (alone.low, alone.high)
    assert np.isnan(percentile_ends(replicates, units=1)).all()
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        percentile_ends(replicates, units=5, level=1)


def test_differences_of_heads_are_paired_by_sequence() -> None:
    (observed, null), _ = drawn_layers()
    observed, null = (array.astype(np.float32)[:, :, 0] for array in (observed, null))
    found = head_differences(observed, null, RESAMPLED.sequences)
    for place in np.ndindex(found.value.shape):
        one, other = (array.astype(np.float64)[:, *place] for array in (observed, null))
        assert found.value[place] == pytest.approx(one.mean(), abs=1e-12)
        assert found.null_value[place] == pytest.approx(other.mean(), abs=1e-12)
        assert found.difference[place] == found.value[place] - found.null_value[place]
        assert found.se[place] == pytest.approx(stats.sem(one - other), abs=1e-12)
        apart = [
            np.repeat(one - other, RESAMPLED.sequences[:, replicate].astype(int)).mean() for replicate in range(R + 1)
        ]
        expected = percentile_interval(apart, units=S, domain=(-1, 1))
        assert (found.low[place], found.high[place]) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_unpaired_differences_would_be_noticed() -> None:
    """A null that follows the selections sequence by sequence leaves a narrow interval, a mixed up one does not."""
    level = np.linspace(0.1, 0.8, S)[:, None]
    paired, mixed = (head_differences(level + 0.1, null, RESAMPLED.sequences) for null in (level, level[::-1]))
    assert paired.difference == pytest.approx(mixed.difference)
    assert paired.high - paired.low < 1e-12
    assert mixed.high - mixed.low > 0.3


def test_one_sequence_has_no_interval() -> None:
    found = head_differences(np.full((1, 4), 0.5), np.full((1, 4), 0.4), resample(1, 3, R).sequences)
    assert found.difference == pytest.approx([0.1] * 4)
    assert np.isnan([found.se, found.low, found.high]).all()


def test_differences_of_the_model_are_those_of_every_head_that_has_the_n() -> None:
    layers = drawn_layers()
    model = added(layers)
    found = model.compute_differences()
    assert model.heads.tolist() == [3 * 2 + 2 * 4] * 3 + [3 * 2] * 2
    for measure, n in np.ndindex(MEASURES, GRID):
        heads = [
            array[..., measure, n].mean(axis=0).ravel() for pair in layers for array in pair if n < array.shape[-1]
        ]
        value, null_value = (np.concatenate(heads[start::2]).mean() for start in (0, 1))
        assert found.value[measure, n] == pytest.approx(value, abs=1e-12)
        assert found.null_value[measure, n] == pytest.approx(null_value, abs=1e-12)
        replicates = replicates_of(layers, measure, n)
        expected = percentile_interval(replicates, units=GROUPS, domain=(-1, 1))
        assert (found.low[measure, n], found.high[measure, n]) == pytest.approx((expected.low, expected.high), abs=1e-9)
        known = replicates[1:][~np.isnan(replicates[1:])]
        assert found.se[measure, n] == pytest.approx(np.std(known) * math.sqrt(GROUPS / (GROUPS - 1)), abs=1e-9)


def test_other_readings_of_the_model_would_be_noticed() -> None:
    layers = drawn_layers()
    right = added(layers).compute_differences()
    alone = Resampling(RESAMPLED.sequences, np.ones_like(RESAMPLED.clusters))
    same = Resampling(np.ones_like(RESAMPLED.sequences), RESAMPLED.clusters)
    for wrong in (alone, same):  # only sequences are resampled, only KV groups are
        assert (added(layers, wrong).compute_differences().se < 0.99 * right.se).any()
    switched = ModelDifferences((MEASURES, GRID), RESAMPLED)
    for observed, null in reversed(layers):  # clusters of another layer
        switched.add(observed.sum(axis=2), null.sum(axis=2), observed.shape[2])
    assert (np.abs(switched.compute_differences().low - right.low) > 1e-4).any()
    groups = [[array.mean(axis=2, keepdims=True) for array in pair] for pair in layers]  # a group counts, not a head
    assert (np.abs(added(groups).compute_differences().value - right.value)[:, :3] > 1e-3).any()


def test_there_is_no_interval_of_a_single_sequence_or_group_or_where_few_replicates_draw_one() -> None:
    layers = drawn_layers()
    one = added([(observed[:1], null[:1]) for observed, null in layers], resample(1, GROUPS, R)).compute_differences()
    (observed, null), _ = layers
    single = added([(observed[:, :1], null[:, :1])], resample(S, 1, R)).compute_differences()
    for found in (one, single):
        assert np.isnan([found.se, found.low, found.high]).all()
        assert not np.isnan(found.difference).any()
    # the last N is of one group in five, which a third of the replicates do not draw
    rare = added([(observed[:, :2, ..., :3], null[:, :2, ..., :3]), (observed[:, :1], null[:, :1])], resample(S, 3, R))
    found = rare.compute_differences()
    assert np.isnan(found.low).all(axis=0).tolist() == [False] * 3 + [True] * 2
    assert not np.isnan(found.difference).any()


def test_where_no_head_is_there_is_no_value() -> None:
    (observed, null), _ = drawn_layers()
    model = ModelDifferences((MEASURES, GRID), RESAMPLED)
    model.add(observed[..., :2].sum(axis=2), null[..., :2].sum(axis=2), 2)
    assert np.isnan(model.compute_differences().value).all(axis=0).tolist() == [False] * 2 + [True] * 3


def test_other_numbers_of_units_are_refused() -> None:
    (observed, null), _ = drawn_layers()
    with pytest.raises(ValueError, match="7 values along the first axis need as many weights, got 6"):
        head_differences(observed, null, resample(6, 1, R).sequences)
    with pytest.raises(ValueError, match="6 clusters of heads were added, 5 were drawn"):
        added([(observed, null), (observed, null)])


def peak_of(work: object) -> int:
    tracemalloc.start()
    work()  # type: ignore[operator]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_is_bounded() -> None:
    sequences, replicates, heads, size = 16, 400, 6, 300
    resampled, rng = resample(sequences, 40, replicates), np.random.default_rng(0)
    observed, null = rng.random((2, sequences, heads, size), np.float32)
    head_differences(observed, null, resampled.sequences)
    bound = estimate_difference_bytes(sequences, heads * size, replicates)
    assert bound / 4 < peak_of(lambda: head_differences(observed, null, resampled.sequences)) <= bound

    def model() -> None:
        found = ModelDifferences((6, size // 6), resampled)
        shape = (sequences, heads, 6, size // 6)
        for _ in range(3):
            found.add(observed.reshape(shape).astype(float), null.reshape(shape).astype(float), 2)
        found.compute_differences()

    given = 2 * observed.size * 8
    assert estimate_model_bytes(size, replicates) / 4 < peak_of(model) - given <= estimate_model_bytes(size, replicates)
