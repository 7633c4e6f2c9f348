"""The norm of the softmax Jacobian against dense eigenvalues, exact rational arithmetic and finite differences."""

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from geometry import limits
from geometry.limits import TEMPERATURES, jacobian_norm, sensitivity, temper
from tests.geometry import draws
from tests.geometry.draws import softmax_rows
from tests.memory import trace


def jacobian(alpha: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """(diag α − α αᵀ) / T."""
    return (np.diag(alpha) - np.outer(alpha, alpha)) / temperature


def dense(alpha: np.ndarray, temperature: float = 1.0) -> float:
    """Largest absolute eigenvalue of all."""
    return float(np.abs(np.linalg.eigvalsh(jacobian(alpha, temperature))).max())


def descends(alpha: list[Fraction], at: Fraction) -> bool:
    """Whether an eigenvalue of diag α − α αᵀ lies above ``at``, exactly.

    By Sylvester's law of inertia for at I − diag α + α αᵀ: the number of α above ``at``, less one where the rank-one
    part lifts one of them over it, 1 + Σ α²/(at − α) < 0.
    """
    if any(a == at for a in alpha):
        raise ZeroDivisionError
    return sum(a > at for a in alpha) - (1 + sum(a * a / (at - a) for a in alpha) < 0) > 0


def certified(alpha: np.ndarray, share: float, found: float, *, ulps: int = 16) -> bool:
    """Whether the largest eigenvalue is ``found`` within a few units in the last place, in rational arithmetic."""
    weights = [Fraction(float(a)) for a in alpha]
    total = sum(weights) + Fraction(share)
    p = [w / total for w in weights if w > 0]
    largest, again = max(p), sorted(p)[-2:-1]
    if again == [largest]:
        return abs(Fraction(found) - largest) <= largest * Fraction(ulps, 2**53)
    width = Fraction(found) * Fraction(ulps, 2**53)
    return descends(p, Fraction(found) - width) and not descends(p, Fraction(found) + width)


def rows(n: int, spread: float, seed: int) -> np.ndarray:
    return softmax_rows(spread * np.random.default_rng([n, seed]).standard_normal(n))


SPREADS = [0.0, 1e-9, 0.01, 1.0, 5.0, 30.0]


@pytest.mark.parametrize("n", [2, 3, 10, 150])
@pytest.mark.parametrize("spread", SPREADS)
def test_it_is_the_largest_of_all_eigenvalues(n: int, spread: float) -> None:
    for seed in range(5):
        alpha = rows(n, spread, seed)
        assert jacobian_norm(alpha) == pytest.approx(dense(alpha), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("n", [2, 3, 8, 25])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("share", [0.0, 1e-12, 0.3, 50.0])
def test_it_is_exact_to_the_last_digits(n: int, spread: float, share: float) -> None:
    for seed in range(3):
        for kind in (np.float32, np.float64):
            alpha = rows(n, spread, seed).astype(kind)
            assert certified(alpha, share, float(jacobian_norm(alpha, share)))


@pytest.mark.parametrize(
    "alpha",
    [
        [1.0, 1e-38, 1e-39],
        [1.0, 1.0 - 2**-53, 0.5],
        [0.5, 0.5 - 2**-54],
        [1e-30, 3e-31, 1e-300],
        [0.4, 0.3, 0.3, 0.3, 0.0, 0.0],
        [0.4, *[0.1] * 6],
        [1.0, *[2.0**-30] * 20],
        [1.0, 0.999999, 0.999998, 1e-3],
        [0.9, *[0.1 * 0.5**i for i in range(20)]],
    ],
)
def test_awkward_rows_are_exact(alpha: list[float]) -> None:
    for share in (0.0, 0.25):
        assert certified(np.array(alpha), share, float(jacobian_norm(alpha, share)))


def test_the_certificate_tells_a_wrong_norm() -> None:
    """Mutation control of the two tests above."""
    alpha = rows(8, 1.0, 0)
    found = float(jacobian_norm(alpha))
    assert certified(alpha, 0.0, found)
    assert not certified(alpha, 0.0, found * (1 + 1e-13))
    assert not certified(alpha, 0.0, found * (1 - 1e-13))
    assert not certified(alpha, 1e-12, found)


@pytest.mark.parametrize("name", ["_enclose_root", "_find_root"])
def test_an_iteration_that_ends_early_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Mutation control: Gershgorin's bound, and one step of the quadratic alone."""
    alpha = rows(25, 1.0, 0)
    for caller in ("_find_norms", "_find_root"):  # in Python, which finds what is replaced
        monkeypatch.setattr(limits, caller, getattr(limits, caller).py_func)
    step = limits._enclose_root
    broken: dict[str, Any] = {
        "_enclose_root": lambda *given: (given[-1], step(*given)[1]),
        "_find_root": lambda _others, first, _second, least: min(first, 2 * least),
    }
    monkeypatch.setattr(limits, name, broken[name])
    assert not certified(alpha, 0.0, float(jacobian_norm(alpha)))


@pytest.mark.parametrize("t", TEMPERATURES)
def test_two_keys_that_share_the_weight_reach_the_bound(t: float) -> None:
    assert sensitivity(np.array([0.5, 0.5, 0.0]), [t])[0] == 1 / (2 * t)
    assert sensitivity(np.full(2, 0.3, np.float32), [t])[0] == 1 / (2 * t)


def test_one_key_moves_nothing_but_against_a_learned_sink() -> None:
    assert jacobian_norm([1.0]) == 0
    assert jacobian_norm([0.7, 0.0, 0.0]) == 0
    assert jacobian_norm([0.75], 0.25) == 0.75 * 0.25
    assert jacobian_norm([0.75, 0.0], 0.25) == 0.75 * 0.25


def test_a_saturated_head_keeps_its_digits() -> None:
    """1 − α₁ of the stored weight has none left: 0 in float32."""
    alpha = softmax_rows(np.array([40.0, 0.0, 1.0, 2.0])).astype(np.float32)
    assert alpha[0] == 1
    rest = alpha[1:].astype(np.float64).sum()
    found = float(jacobian_norm(alpha))
    assert rest < found < 2 * rest
    assert certified(alpha, 0.0, found)


@pytest.mark.parametrize("t", TEMPERATURES)
def test_it_bounds_how_far_weights_move(t: float) -> None:
    """Differences of softmax(l / T) along the most sensitive direction, and along others."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.standard_normal(30)
    norm = float(sensitivity(softmax_rows(logits), [t])[0])
    direction = np.linalg.eigh(jacobian(softmax_rows(logits / t)))[1][:, -1]

    def moved(along: np.ndarray) -> float:
        step = 1e-5 * along / np.linalg.norm(along)
        return float(np.linalg.norm(softmax_rows((logits + step) / t) - softmax_rows((logits - step) / t)) / 2e-5)

    assert moved(direction) == pytest.approx(norm, rel=1e-6)
    assert all(moved(rng.standard_normal(30)) < norm for _ in range(20))


@pytest.mark.parametrize("t", TEMPERATURES)
def test_temperatures_are_those_of_the_weights_and_of_the_derivative(t: float) -> None:
    alpha = np.stack([rows(40, spread, 0) for spread in (0.1, 2.0, 10.0)])
    wanted = [dense(row, t) for row in temper(alpha, t)]
    np.testing.assert_allclose(sensitivity(alpha, [t])[:, 0], wanted, rtol=1e-9, atol=1e-14)
    if t != 1:  # mutation control: either alone
        assert np.abs(sensitivity(alpha, [1.0])[:, 0] / t / wanted - 1).max() > 0.1
        assert np.abs([dense(row) for row in temper(alpha, t)] / np.array(wanted) - 1).max() > 0.1


@pytest.mark.parametrize("t", TEMPERATURES)
def test_with_a_learned_sink_it_is_that_of_the_keys(t: float) -> None:
    logits = 3 * np.random.default_rng(0).standard_normal((4, 12))
    whole, at_t = softmax_rows(logits), softmax_rows(logits / t)
    wanted = [dense(row, t) for row in at_t[:, :-1]]
    found = sensitivity(whole[:, :-1], [t], whole[:, -1])[:, 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-10)
    without = sensitivity(whole[:, :-1], [t])[:, 0]  # mutation control: the sink left out
    assert np.abs(without / wanted - 1).max() > 0.01


def test_shapes() -> None:
    weights, _ = draws.grouped(draws.random_head, 2, 3, 20, 4)
    assert jacobian_norm(weights).shape == (2, 3)
    assert sensitivity(weights).shape == (2, 3, len(TEMPERATURES))
    assert jacobian_norm(weights[0, 0]).shape == ()
    assert jacobian_norm(np.empty((0, 5))).shape == (0,)
    for head in np.ndindex(2, 3):
        np.testing.assert_array_equal(sensitivity(weights)[head], sensitivity(weights[head]))


def test_other_rows_are_no_part_of_the_result() -> None:
    weights = np.stack([rows(16, 2.0, seed) for seed in range(50)])
    np.testing.assert_array_equal(jacobian_norm(weights), [jacobian_norm(row) for row in weights])


@pytest.mark.parametrize("shape", [(64, 512), (1, 50_000), (500, 16)])
def test_memory_keeps_within_its_bound(shape: tuple[int, int]) -> None:
    weights = np.random.default_rng(0).random(shape).astype(np.float32)
    for function in (jacobian_norm, sensitivity):
        function(weights)
        result, peak = trace(partial(function, weights))
        peak -= result.nbytes
        assert peak <= limits.estimate_sensitivity_bytes(*shape)
        assert peak > limits.estimate_sensitivity_bytes(*shape) / 20  # else the bound says nothing


@pytest.mark.parametrize("spread", SPREADS)
def test_the_norm_never_exceeds_half_over_t(spread: float) -> None:
    weights = np.stack([rows(n, spread, seed)[:2] for n in (2, 3, 30) for seed in range(20)])
    assert (sensitivity(weights) <= 0.5 / np.array(TEMPERATURES) * (1 + 1e-15)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, -0.5],), "weights must be finite and not negative"),
        (([0.5, np.nan],), "weights must be finite and not negative"),
        (([[0.5, 0.5], [0.0, 0.0]],), "all weights of a row are 0"),
        (([0.5, 0.4], [1.0], [0.1]), "must match"),
        (([0.5, 0.4], [0.0]), "temperature must be a positive number"),
    ],
)
def test_what_is_no_row_or_no_temperature_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sensitivity(*arguments)
