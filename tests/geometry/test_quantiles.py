"""Streamed quantiles: equal to NumPy's on all numbers at once, bounded in memory, nothing silent."""

import tracemalloc
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from geometry.statistics.quantiles import (
    estimate_quantile_bytes,
    quantile_over_ln_n,
    quantiles_of_replicates,
    stream_quantiles,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from geometry.statistics import quantiles

PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
Blocks = list[np.ndarray]


def oracle(blocks: Blocks, probabilities: tuple[float, ...]) -> np.ndarray:
    return np.quantile(np.concatenate(blocks, axis=1).astype(np.float64), probabilities, axis=1).T


def agrees(blocks: Blocks, probabilities: tuple[float, ...] = PROBABILITIES) -> bool:
    found = stream_quantiles(lambda: blocks, probabilities, len(blocks[0]))
    wanted = oracle(blocks, probabilities)
    return found.shape == wanted.shape and bool(np.allclose(found, wanted, rtol=1e-14, atol=0))


def drawn(seed: int = 0, heads: int = 3) -> Blocks:
    rng = np.random.default_rng(seed)
    scale = np.array([[1e-3], [1.0], [1e4]])[:heads]
    return [(scale * rng.lognormal(size=(heads, size))).astype(np.float32) for size in (50, 1, 0, 400)]


numbers = st.floats(0, float(np.finfo(np.float32).max), width=32) | st.sampled_from(
    [0.0, -0.0, 1.0, float(np.float32(1e-45)), float(np.nextafter(np.float32(1), np.float32(2))), 2.0**20]
)


@settings(deadline=None)
@given(
    blocks=st.lists(st.integers(0, 9), min_size=1, max_size=4).flatmap(
        lambda sizes: st.tuples(*(arrays(np.float32, (2, size), elements=numbers) for size in sizes))
    ),
    probabilities=st.lists(st.floats(0, 1), min_size=1, max_size=4),
)
def test_any_numbers_have_the_quantiles_numpy_finds(blocks: tuple, probabilities: list[float]) -> None:
    if sum(block.shape[1] for block in blocks):
        assert agrees(list(blocks), tuple(probabilities))


def test_many_numbers_of_several_sizes() -> None:
    assert agrees(drawn())
    assert agrees(drawn(), (0.0, 1.0))


def test_the_numbers_of_one_head_are_not_those_of_another() -> None:
    blocks = drawn()
    alone = [stream_quantiles(lambda head=head: [b[head : head + 1] for b in blocks], [0.5], 1)[0] for head in range(3)]
    np.testing.assert_array_equal(stream_quantiles(lambda: blocks, [0.5], 3), alone)


def test_all_the_same_and_one_alone() -> None:
    same = np.full((1, 1000), 0.1, np.float32)
    np.testing.assert_array_equal(stream_quantiles(lambda: [same], PROBABILITIES, 1), np.float64(np.float32(0.1)))
    np.testing.assert_array_equal(stream_quantiles(lambda: [same[:, :1]], PROBABILITIES, 1), np.float64(same[0, 0]))


def noticed() -> bool:
    """Whether the quantiles are wrong or refused."""
    try:
        return not agrees(drawn())
    except ValueError:
        return True


def wrong_descents() -> dict[str, Callable[..., tuple]]:
    right = quantiles._find_digits
    return {
        "rank": lambda counts, rank: right(counts, np.maximum(rank - 1, 0)),
        "left": lambda counts, rank: (right(counts, rank)[0], rank * 0),
        "digit": lambda counts, rank: (np.maximum(right(counts, rank)[0] - 1, 0), right(counts, rank)[1]),
    }


@pytest.mark.parametrize("name", list(wrong_descents()))
def test_a_wrong_descent_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantiles, "_find_digits", wrong_descents()[name])
    assert noticed()


@pytest.mark.parametrize("change", [lambda patterns: patterns * 0, lambda patterns: patterns[::-1].copy()])
def test_a_count_under_other_prefixes_is_noticed(change: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    count = quantiles._count
    assert not noticed()
    monkeypatch.setattr(quantiles, "_count", lambda bits, patterns, *rest: count(bits, change(patterns), *rest))
    assert noticed()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_replicates_have_the_quantiles_numpy_finds_and_stay_as_they_are(dtype: type) -> None:
    replicates = np.random.default_rng(0).standard_normal((5, 3, 400)).astype(dtype)
    before, probabilities = replicates.copy(), [0.025, 0.5, 0.975]
    wanted = np.quantile(replicates, probabilities, axis=-1)
    np.testing.assert_array_equal(quantiles_of_replicates(replicates, probabilities), wanted, strict=True)
    np.testing.assert_array_equal(replicates, before)


def test_no_numbers_have_no_quantiles() -> None:
    assert np.isnan(stream_quantiles(list, PROBABILITIES, 2)).all()
    assert stream_quantiles(lambda: [np.empty((2, 0), np.float32)], PROBABILITIES, 2).shape == (2, 5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, -np.inf])
def test_numbers_without_an_order_of_patterns_are_refused(bad: float) -> None:
    blocks = drawn()
    blocks[3][1, 7] = bad
    with pytest.raises(ValueError, match="finite numbers that are not negative"):
        stream_quantiles(lambda: blocks, PROBABILITIES, 3)


@pytest.mark.parametrize("block", [np.zeros((2, 4), np.float32), np.zeros((3, 4)), np.zeros(3, np.float32)])
def test_blocks_of_another_kind_are_refused(block: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"blocks must be float32 of the shape \(3, numbers\)"):
        stream_quantiles(lambda: [block], PROBABILITIES, 3)


def test_blocks_that_can_be_read_once_only_are_refused() -> None:
    once = iter(drawn())
    with pytest.raises(ValueError, match="the same numbers every time"):
        stream_quantiles(lambda: once, PROBABILITIES, 3)


@pytest.mark.parametrize("probabilities", [[-0.1], [1.1], [np.nan], [[0.5]]])
def test_what_is_no_probability_is_refused(probabilities: list[float]) -> None:
    with pytest.raises(ValueError, match="probabilities must be"):
        stream_quantiles(drawn, probabilities, 3)


@pytest.mark.parametrize("blocks", [1, 30])
def test_memory_is_bounded_whatever_the_number_of_numbers(blocks: int) -> None:
    block = np.random.default_rng(0).random((4, 1000), dtype=np.float32)
    stream_quantiles(lambda: [block], PROBABILITIES, 4)  # compiled
    tracemalloc.start()
    try:
        stream_quantiles(lambda: (block for _ in range(blocks)), PROBABILITIES, 4)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    bound = estimate_quantile_bytes(4, len(PROBABILITIES)) + 2 * block.nbytes
    assert 0.3 * bound < taken < bound


def over_ln_n(curve: Sequence[float], probability: Fraction, weigh: Callable[[int], Fraction]) -> float:
    """The definition, in whole numbers: the largest c such that the N at c or above hold a share of all weight."""
    weights = [weigh(n) for n in range(1, len(curve) + 1)]
    reached = [
        c
        for c in curve
        if sum(w for w, other in zip(weights, curve, strict=True) if other >= c) >= (1 - probability) * sum(weights)
    ]
    return max(reached, default=float("nan"))


def over_one_in_n(n: int) -> Fraction:
    return Fraction(1, n)


cosines = st.integers(-8, 8).map(lambda eighths: eighths / 8) | st.just(float("nan"))


@given(st.lists(cosines, max_size=60), st.sampled_from([Fraction(1, 32), Fraction(1, 20), Fraction(1, 3)]))
def test_a_curve_has_the_quantile_of_the_definition(curve: list[float], probability: Fraction) -> None:
    found = quantile_over_ln_n(np.array(curve), float(probability))
    np.testing.assert_equal(float(found), over_ln_n(curve, probability, over_one_in_n))


def test_a_wrong_weight_or_a_wrong_end_is_noticed() -> None:
    rng = np.random.default_rng(0)
    curves = rng.uniform(-1, 1, (40, 60))
    found = quantile_over_ln_n(curves, 0.05)
    for curve, quantile in zip(curves, found, strict=True):
        assert quantile == over_ln_n(list(curve), Fraction(1, 20), over_one_in_n)
    evenly = [over_ln_n(list(curve), Fraction(1, 20), lambda _: Fraction(1)) for curve in curves]
    assert (np.array(evenly) != found).mean() > 0.5
    assert (quantile_over_ln_n(curves, 0.95) > found).all()
    assert (quantile_over_ln_n(curves[:, ::-1], 0.05) != found).any()


def test_curves_keep_their_type_and_leading_axes() -> None:
    curves = np.random.default_rng(0).uniform(-1, 1, (2, 3, 7)).astype(np.float32)
    found = quantile_over_ln_n(curves, 0.05)
    assert (found.shape, found.dtype) == ((2, 3), np.float32)
    assert found[1, 2] == quantile_over_ln_n(curves[1, 2], 0.05)
    assert np.isnan(quantile_over_ln_n(curves[..., :0], 0.05)).all()


def test_what_is_missing_is_below_every_number() -> None:
    curve = np.append(np.full(99, 0.5), np.nan)
    assert quantile_over_ln_n(curve, 0.05) == 0.5
    assert np.isnan(quantile_over_ln_n(curve[::-1], 0.05)), "N = 1 alone weighs more than 5 %"


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
def test_a_probability_is_between_0_and_1(probability: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile_over_ln_n(np.ones(3), probability)
