"""What the output of a head loses with N keys, against the definitions in rational arithmetic."""

from collections.abc import Callable

import numpy as np
import pytest

from geometry import SelectionErrors, list_declared, output_parts, selection_errors, selection_profile
from geometry.selection.errors import count_keys_below
from tests.geometry import oracle
from tests.geometry.draws import aligned_head, assumed_head, random_head, repeated_head, sunk_head, underflowed_head

NAMES = tuple(list_declared(SelectionErrors))
Drawn = tuple[np.ndarray, np.ndarray]


def with_learned_sink(n: int, d: int, seed: int) -> Drawn:
    """Weights that sum to 0.4."""
    weights, values = random_head(n, d, seed, spread=1.0)
    return np.float32(0.4) * weights, values


KINDS: dict[str, Callable[[int, int, int], Drawn]] = {
    "random": random_head,
    "assumed": assumed_head,
    "repeated": repeated_head,
    "sunk": sunk_head,
    "aligned": aligned_head,
    "underflowed": underflowed_head,
    "learned sink": with_learned_sink,
    "float64": lambda n, d, seed: tuple(array.astype(np.float64) for array in random_head(n, d, seed)),
    "large": lambda n, d, seed: (random_head(n, d, seed)[0], np.float32(1e36) * random_head(n, d, seed)[1]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 3, 40])
def test_errors_are_those_of_the_definitions(kind: str, n: int) -> None:
    weights, values = KINDS[kind](n, 5, 0)
    errors, wanted = selection_errors(weights, values), oracle.exact_errors(weights, values)
    for name in NAMES:
        np.testing.assert_allclose(getattr(errors, name), wanted[name], rtol=1e-12, atol=1e-15, err_msg=name)


def test_a_small_error_keeps_its_digits_beside_the_output() -> None:
    """And would not as a difference of sums of all keys and of the selected ones."""
    weights, values = random_head(60, 4, 1, spread=6.0)
    wanted = oracle.exact_errors(weights, values)["error_mean"]
    assert wanted[-1] < 1e-9
    np.testing.assert_allclose(selection_errors(weights, values).error_mean, wanted, rtol=1e-12)
    y = weights[:, None].astype(float) * values
    chosen = np.argsort(-weights, kind="stable")[:-1]
    left = weights.sum(dtype=float) - weights[chosen].sum(dtype=float)
    apart = y.sum(axis=0) - y[chosen].sum(axis=0) - left * values.mean(axis=0, dtype=float)
    assert np.linalg.norm(apart) / np.linalg.norm(y.sum(axis=0)) != pytest.approx(wanted[-1], rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("reading", "changed"),
    [
        (lambda a, v: oracle.exact_errors(a, np.roll(v, 1, axis=0)), {"error_renormalised", "error_mean"}),
        (lambda a, v: oracle.exact_errors(np.append(a, 0), np.append(v, 9 + v[:1], axis=0)), {"error_mean"}),
        (lambda a, v: oracle.exact_errors(np.append(a, 1), np.append(v, 0 * v[:1], axis=0)), set(NAMES)),
        (lambda a, v: {name: np.roll(curve, 1) for name, curve in oracle.exact_errors(a, v).items()}, set(NAMES)),
    ],
    ids=["value states of other keys", "a key more in the mean", "a learned sink as a key", "another N"],
)
def test_wrong_readings_differ(reading: Callable[..., dict[str, np.ndarray]], changed: set[str]) -> None:
    weights, values = random_head(30, 4, 2, spread=1.0)
    found, wrong = selection_errors(weights, values), reading(weights, values)
    differing = {name for name in NAMES if not np.allclose(getattr(found, name), wrong[name][:29], rtol=1e-3)}
    assert differing == changed


def test_errors_are_mass_times_a_distance_and_those_of_the_profile() -> None:
    """τ‖μ_rest − μ_selected‖ of arXiv 2512.07647, and ‖o − s_N‖ from what the profile knows of s_N."""
    weights, values = random_head(50, 8, 3, spread=1.0)
    weights /= weights.sum()
    errors, profile = selection_errors(weights, values), selection_profile(weights, values)
    output = float(output_parts(weights, values).norm_output)
    for size in (1, 7, 49):
        inside, outside = oracle.split(weights, size)
        means = [np.average(values[keys].astype(float), axis=0, weights=weights[keys]) for keys in (inside, outside)]
        distance = errors.error_renormalised[size - 1] / errors.weight_left_out[size - 1] * output
        assert distance == pytest.approx(float(np.linalg.norm(means[0] - means[1])), rel=1e-9)
        s = weights[inside].astype(float) @ values[inside]
        assert profile.norm_s[size - 1] == pytest.approx(float(np.linalg.norm(s)))


def test_query_heads_share_the_value_states_of_their_kv_head() -> None:
    drawn = [random_head(11, 4, seed) for seed in range(6)]
    weights = np.stack([weights for weights, _ in drawn]).reshape(2, 3, 11)
    values = np.stack([values for _, values in drawn[:2]])[:, None]
    errors = selection_errors(weights, values)
    for kv_head, head in np.ndindex(2, 3):
        alone = selection_errors(weights[kv_head, head], values[kv_head, 0])
        for name in NAMES:
            assert getattr(errors, name).shape == (2, 3, 10)
            np.testing.assert_array_equal(getattr(errors, name)[kv_head, head], getattr(alone, name))


def test_an_output_of_norm_0_has_no_error() -> None:
    errors = selection_errors(np.full(4, 0.25), np.zeros((4, 2)))
    assert np.isnan(errors.error_mean).all()
    np.testing.assert_array_equal(errors.weight_left_out, [0.75, 0.5, 0.25])


def test_the_keys_of_an_error_are_the_first_from_which_it_stays_below() -> None:
    rng = np.random.default_rng(0)
    curves = np.concatenate([rng.uniform(0, 0.3, (40, 7)), [[0.0] * 7, [1.0] * 7, [0.1] * 7, [0.05, 0.2, *[0.0] * 5]]])

    def count(curve: np.ndarray, limit: float) -> int:
        return next(n for n in range(1, 9) if all(error < limit for error in curve[n - 1 :]))

    for limit in (0.01, 0.1, 0.25):
        found = count_keys_below(curves, limit)
        assert found.tolist() == [count(curve, limit) for curve in curves]
        first = np.where((curves < limit).any(axis=1), (curves < limit).argmax(axis=1) + 1, 8)
        assert limit == 0.01 or (found != first).any()  # mutation control: the first N below the limit
    assert count_keys_below(np.full((2, 3), np.nan), 0.1).tolist() == [1, 1]
