"""The parts of a head's output, and what it loses with N keys, against the definitions key by key."""

from collections.abc import Callable

import numpy as np
import pytest

from geometry import OutputParts, SelectionErrors, list_declared, output_parts, selection_errors
from geometry.selection.outputs import count_keys_below
from tests.geometry import oracle
from tests.geometry.draws import assumed_head, random_head, sunk_head, underflowed_head

PARTS = tuple(list_declared(OutputParts))
Parts = dict[str, float]


def norm(vector: list[float]) -> float:
    return sum(x * x for x in vector) ** 0.5


def literally(weights: np.ndarray, values: np.ndarray, *, sink: bool = True) -> Parts:
    """The definitions in plain Python: weights (n,), values (n, d)."""
    y = [[float(a) * float(x) for x in v] for a, v in zip(weights, values, strict=True)]
    rest = [y[i] for i in range(len(y)) if i != len(y) - 1 and not (sink and i == 0)]
    total = [sum(row[k] for row in rest) for k in range(values.shape[1])]

    def without(key: int) -> float:
        """Norm of the sum of all but one key."""
        return norm([sum(y[i][k] for i in range(len(y)) if i != key) for k in range(values.shape[1])])

    return {
        "sink_weight": float(weights[0]) if sink else np.nan,
        "norm_y_0": norm(y[0]) if sink else np.nan,
        "norm_y_last": norm(y[-1]),
        "norm_rest": norm(total),
        "total_rest": sum(norm(row) for row in rest),
        "norm_output": norm([sum(row[k] for row in y) for k in range(values.shape[1])]),
        "norm_output_without_sink": without(0) if sink else np.nan,
        "norm_output_without_last": without(len(y) - 1),
        "norm_contributions": norm([norm(row) for row in y]),
    }


def found(weights: np.ndarray, values: np.ndarray, *, sink: bool = True) -> Parts:
    return {name: float(getattr(output_parts(weights, values, sink=sink), name)) for name in PARTS}


Drawn = tuple[np.ndarray, np.ndarray]


def draw_small(n: int, d: int, seed: int = 0) -> Drawn:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(n)).astype(np.float32), rng.standard_normal((n, d)).astype(np.float32)


def scaled(head: Drawn, weights: float = 1, values: float = 1) -> Drawn:
    """The weights times one factor, the value states times another, in float32."""
    return np.float32(weights) * head[0], np.float32(values) * head[1]


KINDS: dict[str, Drawn] = {
    "many": draw_small(40, 6),
    "two": draw_small(2, 5),
    "float64": tuple(array.astype(np.float64) for array in random_head(40, 5, 1)),
    "assumed": assumed_head(40, 5, 0),
    "sunk": sunk_head(40, 5, 0),
    "underflowed": underflowed_head(40, 5, 0),
    "learned sink": scaled(random_head(40, 5, 0, spread=1.0), weights=0.4),
    "large": scaled(draw_small(6, 3), values=1e38),
}
FURTHER: dict[str, Drawn] = {
    "one": draw_small(1, 4),
    "zero value states": scaled(draw_small(5, 2), values=0),
    "one direction": (draw_small(12, 3)[0], np.abs(draw_small(12, 3)[1][:, :1]) * np.float32([1, 2, 2])),
    "small": scaled(draw_small(6, 3), 1e-30, 1e-30),
}
"""Heads with errors, and such as have none that could be told; value states in one direction have equal norms of sums
and sums of norms.
"""


@pytest.mark.parametrize("kind", KINDS | FURTHER)
@pytest.mark.parametrize("sink", [True, False])
def test_parts_are_those_of_the_definitions(kind: str, *, sink: bool) -> None:
    weights, values = (KINDS | FURTHER)[kind]
    parts = found(weights, values, sink=sink)
    assert parts == pytest.approx(literally(weights, values, sink=sink), rel=1e-12, abs=0, nan_ok=True)
    assert parts["total_rest"] >= parts["norm_rest"]


@pytest.mark.parametrize("outweighs", ["sink", "last"])
def test_the_rest_keeps_its_digits_beside_a_part_that_outweighs_it(outweighs: str) -> None:
    """And would not if it were the whole less the other two, in the precision that the output has."""
    weights, values = draw_small(300, 8)
    heavy = 0 if outweighs == "sink" else -1
    weights[heavy] = 1
    values[heavy] *= 1e6
    y = weights[:, None] * values
    wanted, parts = literally(weights, values), found(weights, values)
    assert parts == pytest.approx(wanted, rel=1e-12)
    assert wanted[("norm_y_0", "norm_y_last")[heavy]] > 1e6 * wanted["norm_rest"]
    by_difference = float(np.linalg.norm(y.sum(axis=0) - y[0] - y[-1]))
    assert by_difference != pytest.approx(wanted["norm_rest"], rel=1e-6)


@pytest.mark.parametrize(
    ("reading", "changed"),
    [
        (
            lambda a, v: literally(a, v, sink=False),
            {"sink_weight", "norm_y_0", "norm_rest", "total_rest", "norm_output_without_sink"},
        ),
        (
            lambda a, v: literally(np.append(a, 0), np.append(v, v[:1], axis=0)),
            {"norm_y_last", "norm_rest", "total_rest", "norm_output_without_last"},
        ),
        (lambda a, v: literally(np.ones_like(a), v), set(PARTS)),
        (lambda a, v: literally(a[::-1], v), set(PARTS)),
    ],
    ids=["the sink in the rest", "the last token in the rest", "without weights", "other weights"],
)
def test_wrong_parts_differ(reading: Callable[[np.ndarray, np.ndarray], Parts], changed: set[str]) -> None:
    weights, values = KINDS["many"]
    parts, wrong = found(weights, values), reading(weights, values)
    assert {name for name in PARTS if wrong[name] != pytest.approx(parts[name], rel=1e-3)} == changed


NAMES = tuple(list_declared(SelectionErrors))


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_those_of_the_definitions(kind: str) -> None:
    weights, values = KINDS[kind]
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
