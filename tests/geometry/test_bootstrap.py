"""Bootstrap intervals: equal to a literal bootstrap, of the coverage they claim, bounded in memory."""

import tracemalloc
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np
import pytest
from scipy.linalg.blas import sgemm

from geometry.statistics import bootstrap
from geometry.statistics.bootstrap import (
    BLOCK,
    MeansAccumulator,
    ModelMeans,
    SinkEffect,
    draw_sequences,
    estimate_accumulator_bytes,
    estimate_model_bytes,
    estimate_sink_effect_bytes,
    selection_means,
)

SEQUENCES, HEADS, KEYS, REPLICATES = 2 * BLOCK + 5, 3, 12, 200
DRAWN = draw_sequences(SEQUENCES, REPLICATES, seed=3)
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
    found = np.empty((6, HEADS, n_keys - 1))
    for head in range(HEADS):
        for n in range(1, n_keys):
            k_in, k_out = (int(count[head, n - 1]) for count in sequence)
            precision, recall = n / (n + k_out), k_in / n
            f_max, f_min = (2 / (1 / precision + 1 / 1), 2 / (1 / 1 + 1 / recall))  # harmonic means with 1 (eq. 4)
            outside, floor = (n_keys - n - k_out) / (n_keys - n), n / n_keys
            excess = (precision - floor) / (1 - floor)
            found[:, head, n - 1] = precision, recall, f_max, f_min, outside, excess
    return found


def layer(made: Iterable[Counts], n_keys: int = KEYS, drawn: np.ndarray = DRAWN) -> bootstrap.LayerMeans:
    return selection_means(lambda: made, heads=HEADS, n_keys=n_keys, drawn=drawn)


# --- resampling ---


def test_every_replicate_draws_as_many_as_there_are() -> None:
    assert DRAWN.shape == (SEQUENCES, REPLICATES)
    assert DRAWN.dtype == np.float32
    assert (np.floor(DRAWN) == DRAWN).all()
    assert (DRAWN.sum(axis=0) == SEQUENCES).all()
    np.testing.assert_array_equal(DRAWN, draw_sequences(SEQUENCES, REPLICATES, seed=3))
    assert (draw_sequences(SEQUENCES, REPLICATES, seed=4) != DRAWN).any()


def test_draws_are_independent_with_replacement() -> None:
    drawn = draw_sequences(50, 4000)
    covariance = np.cov(drawn)
    np.testing.assert_allclose(drawn.mean(axis=1), 1, atol=0.1)
    np.testing.assert_allclose(covariance.diagonal(), 1 - 1 / 50, atol=0.15)
    off = covariance[~np.eye(50, dtype=bool)]
    assert abs(off.mean() + 1 / 50) < 1e-3


@pytest.mark.parametrize(("sequences", "replicates"), [(0, 10), (5, 0), (2**24 + 1, 1)])
def test_nothing_to_draw_from_is_refused(sequences: int, replicates: int) -> None:
    with pytest.raises(ValueError, match="sequences must be"):
        draw_sequences(sequences, replicates)


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
    means = accumulated(np.full((1, 3), 0.3), draw_sequences(1, 50), 1)
    np.testing.assert_array_equal(means.mean, 0.3)
    assert np.isnan(means.interval()).all()


def test_an_interval_covers_the_true_mean_as_often_as_it_says() -> None:
    """2000 studies of 60 sequences side by side; percentile intervals of 60 are some 1 % short."""
    values = np.random.default_rng(0).normal(5, 2, size=(60, 2000))
    low, high = accumulated(values, draw_sequences(60, 1000), 60).interval(0.95)
    covered = ((low <= 5) & (high >= 5)).mean()
    assert 0.925 < covered < 0.96
    low, high = accumulated(values, draw_sequences(60, 1000), 60).interval(0.8)
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
    monkeypatch.setattr(bootstrap, "ACCUMULATOR_BYTES", 4 * 5 * HEADS * REPLICATES * 3)

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
    drawn = draw_sequences(1, 50)
    found = layer(counts(sequences=1), drawn=drawn)
    model = ModelMeans(KEYS, 50)
    model.add(found)
    assert np.isfinite(found.mean).all()
    assert np.isfinite(model.mean).all()
    assert np.isnan([found.low, found.high]).all()
    assert np.isnan(model.interval()).all()


@pytest.mark.parametrize("sequences", [2, 3, 4, 8, 16])
def test_means_of_shares_and_their_intervals_are_shares(sequences: int) -> None:
    """Sequences that differ most: all keys or none, and N/3 keys, which float32 has no number for."""
    n = np.arange(1, KEYS)
    k_in, k_out = np.zeros((2, sequences, HEADS, KEYS - 1), np.int32)
    k_in[-1], k_out[0] = n, 2 * n
    model, drawn = ModelMeans(KEYS, 1000), draw_sequences(sequences)
    found = layer(zip(k_in, k_out, strict=True), drawn=drawn)
    for _ in range(3):
        model.add(found)
    for means in (found.mean, found.low, found.high, model.mean, *model.interval()):
        assert ((means >= 0) & (means <= 1)).all()


def test_a_layer_of_one_key_has_no_selection() -> None:
    assert layer(counts(n_keys=1, width=4), n_keys=1).mean.shape == (6, HEADS, 0)


@pytest.mark.parametrize(("n_keys", "drawn"), [(KEYS - 1, DRAWN), (KEYS + 1, DRAWN), (KEYS, draw_sequences(5, 10))])
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
    n_keys, drawn = 200, draw_sequences(sequences, 500)
    one = counts(n_keys=n_keys, width=n_keys - 1, sequences=1)
    results = 3 * 8 * 4 * HEADS * n_keys + 2 * 16 * n_keys * 500
    bound = estimate_accumulator_bytes(2**22 // (4 * 500), 500) + results
    taken = peak(lambda: layer(one * sequences, n_keys, drawn))
    assert 0.3 * bound < taken < bound


def test_memory_of_a_model() -> None:
    n_keys, drawn = 200, draw_sequences(2, 500)
    means = layer(counts(n_keys=n_keys, width=n_keys - 1, sequences=2), n_keys, drawn)
    taken = peak(lambda: ModelMeans(n_keys, 500).add(means)) + means.deviations.nbytes
    bound = estimate_model_bytes(n_keys, 500) + 2**17  # NumPy's buffers
    assert 0.9 * bound < taken < bound


# --- correlation over heads ---

Layer = tuple[np.ndarray, np.ndarray]
"""K_in, (sequence, head, N), of one layer, and ρ_0 of its heads, (sequence, head)."""
FEW = 7
FEW_DRAWN = draw_sequences(FEW, 60, seed=5)


def layers(n_keys: Iterable[int] = (KEYS, 7, KEYS), sequences: int = FEW) -> list[Layer]:
    """Heads whose Recall rises with ρ_0, some without a ρ_0: one always, one sometimes, one in a single sequence."""
    rng, made = np.random.default_rng(2), []
    for index, keys in enumerate(n_keys):
        rho = np.clip(rng.uniform(-0.2, 0.6, HEADS) + 0.1 * rng.standard_normal((sequences, HEADS)), -1, 1)
        n = np.arange(1, keys)
        k_in = np.clip(np.rint(n * (rho[..., None] + rng.uniform(0.2, 0.6, (sequences, HEADS, keys - 1)))), 1, n)
        if index == 0:
            rho[:, 0], rho[::2, 1], rho[:-1, 2] = np.nan, np.nan, np.nan
        made.append((k_in.astype(np.int32), rho.astype(np.float32)))
    return made


def pearson(pairs: list[tuple[Fraction, Fraction]]) -> float:
    """Pearson's correlation without any rounding but that of the result; NaN where there is none."""
    if len(pairs) < 3:
        return np.nan
    middle = [sum(part) / len(pairs) for part in zip(*pairs, strict=True)]
    moved = [(x - middle[0], y - middle[1]) for x, y in pairs]
    xx, yy, xy = (sum(a[i] * a[j] for a in moved) for i, j in ((0, 0), (1, 1), (0, 1)))
    if xx * yy == 0:
        return np.nan
    return float(np.sign(float(xy)) * np.sqrt(float(xy * xy / (xx * yy))))


def mean_pairs(made: list[Layer], n: int, indices: Iterable[int]) -> list[tuple[Fraction, Fraction]]:
    """Mean Recall and mean ρ_0 of every head that has both, one after the other."""
    found = []
    for k_in, rho in made:
        for head in range(k_in.shape[1]) if n <= k_in.shape[2] else ():
            recalls = [Fraction(int(k_in[s, head, n - 1]), n) for s in indices]
            known = [Fraction(float(rho[s, head])) for s in indices if not np.isnan(rho[s, head])]
            if known:
                found.append((sum(recalls) / len(recalls), sum(known) / len(known)))
    return found


def over_heads(made: list[Layer], n: int, indices: Iterable[int]) -> float:
    """What Figure 6 shows: the correlation over heads of means over sequences."""
    return pearson(mean_pairs(made, n, indices))


def mean_of_correlations(made: list[Layer], n: int, indices: Iterable[int]) -> float:
    return float(np.mean([pearson(mean_pairs(made, n, [s])) for s in indices]))


def over_sequences(made: list[Layer], n: int, indices: Iterable[int]) -> float:
    by_sequence = [mean_pairs(made, n, [s]) for s in indices]
    return pearson([(sum(x for x, _ in p) / len(p), sum(y for _, y in p) / len(p)) for p in by_sequence])


def with_unknown_as_zero(made: list[Layer], n: int, indices: Iterable[int]) -> float:
    return over_heads([(k_in, np.nan_to_num(rho)) for k_in, rho in made], n, indices)


def without_heads_of_some(made: list[Layer], n: int, indices: Iterable[int]) -> float:
    whole = [(k_in[:, known], rho[:, known]) for k_in, rho in made for known in [~np.isnan(rho).any(axis=0)]]
    return over_heads(whole, n, indices)


def effect(made: list[Layer], drawn: np.ndarray = FEW_DRAWN) -> SinkEffect:
    """The correlation of layers whose counts are stored to the N of the longest."""
    longest = max(k_in.shape[2] for k_in, _ in made)
    found = SinkEffect(longest + 1, drawn)
    for k_in, rho in made:
        stored = np.full((*k_in.shape[:2], longest), -1, np.int32)
        stored[..., : k_in.shape[2]] = k_in
        found.add(lambda stored=stored: iter(stored), rho, k_in.shape[2] + 1)
    return found


def agrees(
    made: list[Layer], found: SinkEffect, statistic: Callable = over_heads, drawn: np.ndarray = FEW_DRAWN
) -> bool:
    """Whether correlation and interval are those of a statistic, resample by resample."""
    sizes = range(1, len(found.heads) + 1)
    whole = [statistic(made, n, range(len(drawn))) for n in sizes]
    resampled = np.array([[statistic(made, n, indices.tolist()) for indices in drawn_indices(drawn)] for n in sizes])
    ends = [
        np.quantile(row[~np.isnan(row)], [0.025, 0.975]) if np.isfinite(value) else [np.nan, np.nan]
        for value, row in zip(whole, resampled, strict=True)
    ]
    wanted = np.column_stack([whole, ends])
    return np.allclose(
        np.column_stack([found.correlation, *found.interval()]), wanted, rtol=0, atol=1e-9, equal_nan=True
    )


def test_the_sink_effect_is_the_correlation_over_heads_of_means_over_sequences() -> None:
    made = layers()
    found = effect(made)
    assert agrees(made, found)
    np.testing.assert_array_equal(found.heads, [8] * 6 + [5] * 5)
    assert np.isnan([part[0] for part in (found.correlation, *found.interval())]).all()  # Recall is 1 at N = 1
    assert (found.interval()[0][1:] < found.correlation[1:]).all()
    for wrong in (mean_of_correlations, over_sequences, with_unknown_as_zero, without_heads_of_some):
        assert not agrees(made, found, wrong), wrong


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("_average_cosines", lambda right: lambda rho, drawn: right(np.nan_to_num(rho), drawn)),
        ("_average_cosines", lambda right: lambda rho, drawn: right(rho, np.minimum(drawn, 1))),
        ("_sum_k_in", lambda right: lambda *given: right(*given[:-1], given[-1][:, ::-1].copy())),
        ("_sum_k_in", lambda right: lambda *given: right(*given)[::-1]),
        ("_correlations", lambda right: lambda sums: right(sums - [1, 0, 0, 0, 0, 0])),
        ("_correlations", lambda right: lambda sums: right(sums[..., [0, 1, 2, 3, 4, 3]])),
    ],
)
def test_a_wrong_sink_effect_is_noticed(name: str, change: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    made = layers()
    monkeypatch.setattr(bootstrap, name, change(getattr(bootstrap, name)))
    assert not agrees(made, effect(made))


def test_the_sink_effect_is_the_same_in_parts_of_n_and_for_layers_in_another_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = layers()
    whole = effect(made)
    monkeypatch.setattr(bootstrap, "ACCUMULATOR_BYTES", 8 * HEADS * 61 * 4)
    monkeypatch.setattr(bootstrap, "BLOCK", 3)
    for other in (effect(made), effect(made[::-1])):
        np.testing.assert_allclose(other.correlation, whole.correlation, rtol=1e-12)
        np.testing.assert_allclose(other.interval(), whole.interval(), rtol=1e-9)


def alike(sequences: int) -> list[Layer]:
    """Heads whose ρ_0 differ in the seventh digit, and that recall all keys but one here and there."""
    rng = np.random.default_rng(9)
    n = np.arange(1, 40)
    k_in = np.maximum(n - rng.integers(0, 2, (sequences, 6, 1)), 1)
    rho = np.float32(0.73) + np.float32(2.0**-24) * rng.integers(0, 4, (sequences, 6)).astype(np.float32)
    return [(k_in, rho), (k_in[:, ::-1], rho)]


def test_heads_that_are_nearly_alike_are_correlated_rightly() -> None:
    made, drawn = alike(16), draw_sequences(16, 3)
    found = effect(made, drawn)
    wanted = [over_heads(made, n, range(16)) for n in range(1, 40)]
    np.testing.assert_allclose(found.correlation[1:], wanted[1:], atol=1e-7)
    recall, rho = (np.concatenate([layer[part].mean(axis=0) for layer in made]) for part in (0, 1))
    x, y = (recall[:, -1] / 39).astype(np.float32), rho.astype(np.float32)
    naive = (x * y).mean() - x.mean() * y.mean()
    exact = np.cov(recall[:, -1] / 39, rho, bias=True)[0, 1]
    assert abs(naive / exact - 1) > 0.1  # what sums that are not centred would give


def test_means_that_are_equal_have_no_correlation() -> None:
    """The same numbers in another order for every head: floating-point means differ, by nothing but their rounding."""
    rng, sequences = np.random.default_rng(0), 30
    orders = [rng.permutation(sequences) for _ in range(6)]
    rho, k_in = rng.uniform(-1, 1, sequences), rng.integers(1, 4, sequences)
    drawn = draw_sequences(sequences, 100)
    same = np.stack([rho[order] for order in orders], axis=1)
    sums = [sum((float(x) for x in column), 0.0) for column in same.T]
    assert max(sums) > min(sums)  # a trap
    other = rng.integers(1, 4, (sequences, 6))
    counts_of = {"rho": other, "recall": np.stack([k_in[order] for order in orders], axis=1)}
    rhos = {"rho": same, "recall": rng.uniform(-1, 1, (sequences, 6))}
    for name, of_heads in counts_of.items():
        stored = np.stack([np.ones_like(of_heads), np.minimum(of_heads, 2), of_heads], axis=-1)
        found = effect([(stored, rhos[name])], drawn)
        assert np.isnan(found.correlation[2]), name
        assert np.isnan([end[2] for end in found.interval()]).all()
        assert np.isfinite(_replicates(found, 2)).mean() > 0.9, name  # a replicate's means do differ


def _replicates(found: SinkEffect, index: int) -> np.ndarray:
    return bootstrap._correlations(found._sums[index, 1:])


def test_replicates_without_a_correlation_are_left_out_of_the_interval() -> None:
    """Heads differ in sequence 0 alone, which some replicates do not draw."""
    rho = np.full((3, 4), 0.25)
    rho[0] = [0.1, 0.5, 0.2, -0.3]
    k_in = np.tile(np.minimum([1, 2, 3, 4], np.arange(1, 6)[:, None]).T, (3, 1, 1))
    drawn = draw_sequences(3, 400)
    found = effect([(k_in, rho)], drawn)
    missing = np.isnan(_replicates(found, 4))
    np.testing.assert_array_equal(missing, drawn[0] == 0)
    assert 0.2 < missing.mean() < 0.4
    np.testing.assert_allclose(np.array(found.interval())[:, 4], found.correlation[4])
    seldom = np.array([[0] * 6 + [1] * 5, [3] * 6 + [2] * 5, [0] * 11], np.float32)
    assert np.isnan(effect([(k_in, rho)], seldom).interval()).all()  # 5 of 11
    assert np.isfinite(effect([(k_in, rho)], seldom[:, 1:]).interval()).any()  # 5 of 10


def test_heads_that_a_replicate_knows_nothing_of_take_no_part_in_it() -> None:
    made = layers(n_keys=(KEYS,))
    rho = made[0][1]
    rho[:, 0] = rho[:, 1] + np.float32(0.1)
    found = effect(made)
    drawn_head = FEW_DRAWN[-1] > 0  # the third head's only sequence
    np.testing.assert_array_equal(np.isnan(_replicates(found, 5)), ~drawn_head | (FEW_DRAWN[1::2].sum(axis=0) == 0))
    assert 0.3 < drawn_head.mean() < 0.9


def test_fewer_than_three_heads_have_no_correlation() -> None:
    k_in, rho = layers(n_keys=(KEYS,))[0]
    rho = np.random.default_rng(0).uniform(size=rho.shape)
    assert np.isfinite(effect([(k_in, rho)]).correlation[1:]).all()
    found = effect([(k_in[:, :2], rho[:, :2])])
    np.testing.assert_array_equal(found.heads, 2)
    assert np.isnan([found.correlation, *found.interval()]).all()
    nothing = effect([(k_in, np.full_like(rho, np.nan))])
    np.testing.assert_array_equal(nothing.heads, 0)
    assert np.isnan([nothing.correlation, *nothing.interval()]).all()


def test_one_sequence_has_a_correlation_and_no_interval() -> None:
    made = layers(n_keys=(KEYS, KEYS), sequences=1)
    made = [(k_in, np.random.default_rng(0).uniform(size=rho.shape)) for k_in, rho in made]
    found = effect(made, draw_sequences(1, 50))
    np.testing.assert_allclose(found.correlation, [over_heads(made, n, [0]) for n in range(1, KEYS)], atol=1e-12)
    assert np.isfinite(found.correlation).any()
    assert np.isnan(found.interval()).all()


def test_a_sink_effect_of_other_sequences_keys_or_numbers_is_refused() -> None:
    k_in, rho = layers()[2]
    found = SinkEffect(KEYS, FEW_DRAWN)
    for sequences, known, keys, why in (
        (k_in[1:], rho, KEYS, f"6 of {FEW} sequences were added"),
        ([*k_in, k_in[0]], rho, KEYS, f"8 of {FEW} sequences were added"),
        (k_in, rho[1:], KEYS, "rho_0 must be cosines"),
        (k_in, rho + 2, KEYS, "rho_0 must be cosines"),
        (k_in, rho, KEYS - 1, "K_in must be"),
        (k_in, rho[:, :2], KEYS, "K_in must be"),
        (k_in, rho, KEYS + 1, "at most that of the model, 12, got 13"),
    ):
        with pytest.raises(ValueError, match=why):
            found.add(lambda sequences=sequences: iter(sequences), known, keys)
    with pytest.raises(ValueError, match="level must be"):
        found.interval(95)


def test_quantiles_copy_what_is_sorted_at_a_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "QUANTILE_ELEMENTS", 2**16)
    resampled = np.random.default_rng(0).standard_normal((8 * 2**16 // 400, 400)).astype(np.float32)
    assert peak(lambda: bootstrap._quantiles(resampled, 0.95)) < 1.5 * 4 * 2**16


@pytest.mark.parametrize("repeats", [1, 6])
def test_memory_of_a_sink_effect_is_bounded_whatever_the_heads(repeats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "ACCUMULATOR_BYTES", 2**22)
    n_keys, drawn, rng = 300, draw_sequences(40, 400), np.random.default_rng(0)
    n = np.arange(1, n_keys)
    k_in, rho = [rng.integers(1, n + 1, (16, n_keys - 1))] * 40, rng.uniform(size=(40, 16))

    def work() -> None:
        found = SinkEffect(n_keys, drawn)
        for _ in range(repeats):
            found.add(lambda: k_in, rho, n_keys)
        found.interval()

    bound = estimate_sink_effect_bytes(n_keys, 40, 16, 400)
    assert 0.8 * bound < peak(work) < bound
