"""Plain arithmetic against loops that are written out, and beside the exact counts."""

import numpy as np
import pytest

from benchmarks import arithmetic
from benchmarks.arithmetic import ARITHMETICS, PlainArithmetic, plain_arithmetic
from geometry import selection_counts
from tests.geometry.arithmetic_by_loop import by_loop
from tests.geometry.draws import HEADS, grouped, random_head, repeated_head, saturated_head, sunk_head
from tests.memory import trace


@pytest.mark.parametrize("kind", HEADS)
def test_differences_are_those_of_a_loop(kind: str) -> None:
    weights, values = HEADS[kind](60, 8, 1)
    found = plain_arithmetic(weights, values)
    for name in ("float32_loop", "float64_literal"):
        expected = by_loop(weights, values, name)
        given = (found.k_in[ARITHMETICS.index(name)], found.k_out[ARITHMETICS.index(name)])
        # sums of squares may be added in another order
        assert np.mean(np.array(given) != expected) <= 0


def test_cdist_is_that_of_pytorch() -> None:
    """Matrix products of one row and of many are rounded differently."""
    weights, values = random_head(60, 8, 1)
    found, expected = plain_arithmetic(weights, values), by_loop(weights, values, "float32_cdist")
    at = ARITHMETICS.index("float32_cdist")
    assert np.mean(np.array([found.k_in[at], found.k_out[at]]) != expected) < 0.05


def test_shares_and_differences_are_those_of_the_counts() -> None:
    """By hand: 3 keys, N = 1 and 2, one arithmetic."""
    counts = {"exact_k_in": [[1, 1]], "exact_k_out": [[0, 1]], "k_in": [[[1, 2]]], "k_out": [[[1, 0]]]}
    found = PlainArithmetic(np.array([1, 2]), **{name: np.array(array) for name, array in counts.items()})
    assert found.recall_differs.tolist() == [[0.5]]
    np.testing.assert_allclose(found.recall_difference, [[[0, 0.5]]])


def test_exact_counts_stand_beside_them() -> None:
    weights, values = grouped(random_head, 2, 3, 40, 4)
    counts, found = selection_counts(weights, values), plain_arithmetic(weights, values, [1, 4, 39])
    np.testing.assert_array_equal(found.exact_k_in, counts.k_in[..., [0, 3, 38]])
    np.testing.assert_array_equal(found.exact_k_out, counts.k_out[..., [0, 3, 38]])
    assert found.k_in.shape == found.k_out.shape == (2, 3, 3, 3)
    assert found.recall_differs.shape == (2, 3, 3)
    alone = plain_arithmetic(weights[1, 2], values[1, 0], [1, 4, 39])
    np.testing.assert_array_equal(found.k_in[1, 2], alone.k_in)


def test_float32_and_even_float64_err_where_the_sink_outweighs_all() -> None:
    """What separates the others is below the rounding of ‖s − y‖², so they all seem equally far."""
    found = plain_arithmetic(*sunk_head(300, 16, 0))
    assert (found.recall_differs > 0.5).all()
    assert (found.recall_difference.mean(axis=-1) > 0.1).all()


def test_float32_errs_on_ordinary_heads_and_float64_does_not() -> None:
    loop, cdist, literal = plain_arithmetic(*random_head(400, 64, 0)).recall_differs
    assert loop > 0.005
    assert cdist > 0.005
    assert literal == 0


@pytest.mark.parametrize("draw", [repeated_head, saturated_head])
def test_pieces_of_some_n_are_the_whole(draw: object, monkeypatch: pytest.MonkeyPatch) -> None:
    head = draw(50, 8, 0)
    whole = plain_arithmetic(*head)
    monkeypatch.setattr(arithmetic, "CHUNK_BYTES", 3 * 50 * 8 * 4)
    pieces = plain_arithmetic(*head)
    for name in ("float32_loop", "float64_literal"):
        at = ARITHMETICS.index(name)
        np.testing.assert_array_equal(pieces.k_in[at], whole.k_in[at])
        np.testing.assert_array_equal(pieces.k_out[at], whole.k_out[at])


def test_memory_is_bounded_by_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    n, d = 600, 32
    weights, values = random_head(n, d, 0)
    monkeypatch.setattr(arithmetic, "CHUNK_BYTES", 2**22)
    plain_arithmetic(*random_head(9, 2, 0))
    _, peak = trace(lambda: plain_arithmetic(weights, values))
    assert peak < 3 * 2**22 < 4 * n * n * d / 3


def test_other_n_are_named() -> None:
    with pytest.raises(ValueError, match="n must be ascending whole numbers from 1 to 8"):
        plain_arithmetic(*random_head(9, 2, 0), [9])
