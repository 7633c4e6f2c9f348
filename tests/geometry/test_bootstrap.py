"""Bootstrap intervals: equal to a literal bootstrap, of the coverage they claim, bounded in memory."""

import tracemalloc
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from scipy.linalg.blas import sgemm

from geometry import bootstrap
from geometry.bootstrap import (
    BLOCK,
    MeansAccumulator,
    ModelMeans,
    accumulator_bytes,
    model_bytes,
    resampling,
    selection_means,
)

SEQUENCES, HEADS, KEYS, REPLICATES = 2 * BLOCK + 5, 3, 12, 200
DRAWN = resampling(SEQUENCES, REPLICATES, seed=3)
Counts = tuple[np.ndarray, np.ndarray]


def drawn_indices(drawn: np.ndarray) -> list[np.ndarray]:
    """The sequences that each replicate draws, one by one."""
    return [np.repeat(np.arange(len(drawn)), column.astype(int)) for column in drawn.T]


def literal(values: np.ndarray, drawn: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and interval over the first axis, by indexing: what the accumulator must give."""
    resampled = np.stack([values[indices].mean(axis=0) for indices in drawn_indices(drawn)])
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return values.mean(axis=0), low, high


def counts(seed: int = 0, n_keys: int = KEYS, width: int = KEYS - 1, sequences: int = SEQUENCES) -> list[Counts]:
    """K_in and K_out of every sequence, −1 beyond N = n_keys − 1."""
    rng, n = np.random.default_rng(seed), np.arange(1, n_keys)
    made = []
    for _ in range(sequences):
        k_in, k_out = np.full((2, HEADS, width), -1, np.int32)
        k_in[:, : n_keys - 1] = rng.integers(1, n + 1, size=(HEADS, n_keys - 1))
        k_out[:, : n_keys - 1] = rng.integers(0, n_keys - n + 1, size=(HEADS, n_keys - 1))
        made.append((k_in, k_out))
    return made


def metrics(sequence: Counts, n_keys: int = KEYS) -> np.ndarray:
    """Definitions 1-3, one N after the other: (metric, head, N)."""
    found = np.empty((4, HEADS, n_keys - 1))
    for head in range(HEADS):
        for n in range(1, n_keys):
            precision = n / (n + int(sequence[1][head, n - 1]))
            recall = int(sequence[0][head, n - 1]) / n
            f_max, f_min = (2 / (1 / precision + 1 / 1), 2 / (1 / 1 + 1 / recall))  # harmonic means with 1 (eq. 4)
            found[:, head, n - 1] = precision, recall, f_max, f_min
    return found


def layer(made: Iterable[Counts], n_keys: int = KEYS, drawn: np.ndarray = DRAWN) -> bootstrap.LayerMeans:
    return selection_means(lambda: made, heads=HEADS, n_keys=n_keys, drawn=drawn)


# --- resampling ---


def test_every_replicate_draws_as_many_as_there_are() -> None:
    assert DRAWN.shape == (SEQUENCES, REPLICATES)
    assert DRAWN.dtype == np.float32
    assert (np.floor(DRAWN) == DRAWN).all()
    assert (DRAWN.sum(axis=0) == SEQUENCES).all()
    np.testing.assert_array_equal(DRAWN, resampling(SEQUENCES, REPLICATES, seed=3))
    assert (resampling(SEQUENCES, REPLICATES, seed=4) != DRAWN).any()


def test_draws_are_independent_with_replacement() -> None:
    drawn = resampling(50, 4000)
    covariance = np.cov(drawn)
    np.testing.assert_allclose(drawn.mean(axis=1), 1, atol=0.1)
    np.testing.assert_allclose(covariance.diagonal(), 1 - 1 / 50, atol=0.15)
    off = covariance[~np.eye(50, dtype=bool)]
    assert abs(off.mean() + 1 / 50) < 1e-3


@pytest.mark.parametrize(("sequences", "replicates"), [(0, 10), (5, 0), (2**24 + 1, 1)])
def test_nothing_to_draw_from_is_refused(sequences: int, replicates: int) -> None:
    with pytest.raises(ValueError, match="sequences must be"):
        resampling(sequences, replicates)


# --- one mean ---


def accumulated(values: np.ndarray, drawn: np.ndarray, block: int) -> MeansAccumulator:
    means = MeansAccumulator(values.shape[1:], drawn)
    for first in range(0, len(values), block):
        means.add(values[first : first + block])
    return means


def matches(values: np.ndarray, drawn: np.ndarray, block: int = 7, level: float = 0.9) -> bool:
    """Whether the accumulator agrees with the literal bootstrap."""
    mean, low, high = literal(values, drawn, level)
    means = accumulated(values, drawn, block)
    found_low, found_high = means.interval(level)
    pairs = ((means.mean, mean), (found_low, low), (found_high, high))
    return all(np.allclose(found, wanted, rtol=0, atol=2e-6) for found, wanted in pairs)


@pytest.mark.parametrize("block", [1, 7, SEQUENCES])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_an_interval_is_that_of_a_literal_bootstrap(block: int, offset: float) -> None:
    values = np.random.default_rng(0).uniform(size=(SEQUENCES, 2, 5)) + offset
    assert matches(values, DRAWN, block)


def wrong_product(change: Callable[..., tuple]) -> Callable[..., object]:
    def product(alpha: float, a: np.ndarray, b: np.ndarray, **given: object) -> object:
        return sgemm(alpha, *change(a, b), **given)

    return product


@pytest.mark.parametrize(
    "change",
    [
        lambda a, b: (a[:, ::-1].copy(order="F"), b),  # weights of other sequences
        lambda a, b: (np.minimum(a, 1), b),  # without replacement
        lambda a, b: (np.roll(a, 1, axis=1), b),
        lambda a, b: (a, b * np.float32(0.99)),
    ],
)
def test_a_wrong_product_is_noticed(change: Callable[..., tuple], monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).uniform(size=(SEQUENCES, 2, 5))
    monkeypatch.setattr(bootstrap, "sgemm", wrong_product(change))
    assert not matches(values, DRAWN)


def test_wrong_quantiles_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).uniform(size=(SEQUENCES, 2, 5))
    right = bootstrap._quantiles
    monkeypatch.setattr(bootstrap, "_quantiles", lambda resampled, level: right(resampled, level - 0.03))
    assert not matches(values, DRAWN)


def test_quantiles_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).uniform(size=(SEQUENCES, 2, 5))
    monkeypatch.setattr(bootstrap, "QUANTILE_ELEMENTS", 3 * REPLICATES)
    assert matches(values, DRAWN)


def test_what_is_the_same_in_all_sequences_has_no_width() -> None:
    values = np.broadcast_to(np.random.default_rng(0).uniform(size=4), (SEQUENCES, 4))
    means = accumulated(values, DRAWN, 7)
    for found in (means.mean, *means.interval()):
        np.testing.assert_array_equal(found, values[0])


def test_one_sequence_has_a_mean_and_no_interval() -> None:
    means = accumulated(np.full((1, 3), 0.3), resampling(1, 50), 1)
    np.testing.assert_array_equal(means.mean, 0.3)
    assert np.isnan(means.interval()).all()


def test_an_interval_covers_the_true_mean_as_often_as_it_says() -> None:
    """2000 studies of 60 sequences side by side; percentile intervals of 60 are some 1 % short."""
    values = np.random.default_rng(0).normal(5, 2, size=(60, 2000))
    low, high = accumulated(values, resampling(60, 1000), 60).interval(0.95)
    covered = ((low <= 5) & (high >= 5)).mean()
    assert 0.925 < covered < 0.96
    low, high = accumulated(values, resampling(60, 1000), 60).interval(0.8)
    assert 0.76 < ((low <= 5) & (high >= 5)).mean() < 0.82


def test_sequences_must_be_all_there_and_of_one_shape() -> None:
    means = MeansAccumulator((2,), DRAWN)
    means.add(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=f"3 of {SEQUENCES} sequences were added"):
        means.interval()
    with pytest.raises(ValueError, match="expected up to"):
        means.add(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="expected up to"):
        means.add(np.zeros((SEQUENCES, 2)))


@pytest.mark.parametrize("level", [0, 1, 95, np.nan])
def test_a_level_that_is_no_share_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        accumulated(np.zeros((SEQUENCES, 1)), DRAWN, 7).interval(level)


# --- means of the selection ---


def test_the_means_of_a_layer_are_those_of_the_definitions() -> None:
    made = counts()
    found = layer(made)
    mean, low, high = literal(np.stack([metrics(sequence) for sequence in made]), DRAWN, 0.95)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-14)
    np.testing.assert_allclose(found.low, low, atol=2e-6)
    np.testing.assert_allclose(found.high, high, atol=2e-6)
    assert (found.low < found.high).any()


def test_passes_over_parts_of_n_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made, passes = counts(), []
    whole = layer(made)
    monkeypatch.setattr(bootstrap, "ACCUMULATOR_BYTES", 4 * 4 * HEADS * REPLICATES * 3)

    def sequences() -> list[Counts]:
        passes.append(1)
        return made

    parts = selection_means(sequences, heads=HEADS, n_keys=KEYS, drawn=DRAWN)
    assert len(passes) == 4  # 11 N, 3 at a time
    for name, found in vars(parts).items():
        np.testing.assert_allclose(found, getattr(whole, name), atol=1e-6)


def test_the_model_mean_counts_every_head_once() -> None:
    """Two layers, the second of which sees 7 keys only."""
    made, short = counts(), counts(1, n_keys=7)
    model = ModelMeans(KEYS, REPLICATES)
    model.add(layer(made))
    model.add(layer(short, n_keys=7))
    first = np.stack([metrics(sequence) for sequence in made])
    second = np.stack([metrics(sequence, 7) for sequence in short])
    both = np.concatenate([first[..., :6], second], axis=2).mean(axis=2)
    mean, low, high = literal(np.concatenate([both, first[..., 6:].mean(axis=2)], axis=-1), DRAWN, 0.95)
    np.testing.assert_array_equal(model.heads, [2 * HEADS] * 6 + [HEADS] * 5)
    np.testing.assert_allclose(model.mean, mean, rtol=1e-13)
    for found, wanted in zip(model.interval(), (low, high), strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-6)
    separate = np.stack([layer(made).low[..., :6], layer(short, n_keys=7).low]).mean(axis=(0, 2))
    assert not np.allclose(separate, low[..., :6], atol=1e-3)  # a mean of intervals is not the interval of the mean


def test_a_model_without_some_n_has_none_there() -> None:
    model = ModelMeans(KEYS, REPLICATES)
    model.add(layer(counts(n_keys=7), n_keys=7))
    for found in (model.mean, *model.interval()):
        assert np.isfinite(found[:, :6]).all()
        assert np.isnan(found[:, 6:]).all()


def test_one_sequence_gives_means_alone() -> None:
    drawn = resampling(1, 50)
    found = layer(counts(sequences=1), drawn=drawn)
    model = ModelMeans(KEYS, 50)
    model.add(found)
    assert np.isfinite(found.mean).all()
    assert np.isfinite(model.mean).all()
    assert np.isnan([found.low, found.high]).all()
    assert np.isnan(model.interval()).all()


def test_a_layer_of_one_key_has_no_selection() -> None:
    assert layer(counts(n_keys=1, width=4), n_keys=1).mean.shape == (4, HEADS, 0)


@pytest.mark.parametrize(("n_keys", "drawn"), [(KEYS - 1, DRAWN), (KEYS + 1, DRAWN), (KEYS, resampling(5, 10))])
def test_sequences_of_other_keys_or_number_are_refused(n_keys: int, drawn: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"must be|expected up to"):
        layer(counts(), n_keys, drawn)
    with pytest.raises(ValueError, match=f"5 of {SEQUENCES} sequences were added"):
        layer(counts(sequences=5))


def test_one_sequence_with_other_keys_is_noticed() -> None:
    made = counts()
    made[9][0][1, KEYS - 2] = -1
    with pytest.raises(ValueError, match="K_in must be"):
        layer(made)


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("sequences", [40, 160])
def test_memory_is_bounded_whatever_the_number_of_sequences(sequences: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "ACCUMULATOR_BYTES", 2**22)
    monkeypatch.setattr(bootstrap, "QUANTILE_ELEMENTS", 2**16)
    n_keys, drawn = 200, resampling(sequences, 500)
    one = counts(n_keys=n_keys, width=n_keys - 1, sequences=1)
    results = 3 * 8 * 4 * HEADS * n_keys + 2 * 16 * n_keys * 500
    bound = accumulator_bytes(2**22 // (4 * 500), 500) + results
    taken = peak(lambda: layer(one * sequences, n_keys, drawn))
    assert 0.3 * bound < taken < bound


def test_memory_of_a_model() -> None:
    n_keys, drawn = 200, resampling(2, 500)
    means = layer(counts(n_keys=n_keys, width=n_keys - 1, sequences=2), n_keys, drawn)
    taken = peak(lambda: ModelMeans(n_keys, 500).add(means)) + means.deviations.nbytes
    bound = model_bytes(n_keys, 500) + 2**17  # NumPy's buffers
    assert 0.9 * bound < taken < bound
