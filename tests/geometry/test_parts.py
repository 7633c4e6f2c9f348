"""The parts of a head's output against the definitions, key by key."""

from collections.abc import Callable

import numpy as np
import pytest

from geometry.quantities import OutputParts, list_declared
from geometry.selection.parts import output_parts

NAMES = tuple(list_declared(OutputParts))
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
    return {name: float(getattr(output_parts(weights, values, sink=sink), name)) for name in NAMES}


def draw(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(n)).astype(np.float32), rng.standard_normal((n, d)).astype(np.float32)


def one_direction(n: int) -> tuple[np.ndarray, np.ndarray]:
    """All value states are multiples of one, so the norm of their sum is the sum of their norms."""
    weights, values = draw(n, 3)
    return weights, np.abs(values[:, :1]) * np.float32([1, 2, 2])


KINDS = {
    "many": draw(40, 6),
    "three": draw(3, 2),
    "two": draw(2, 5),
    "one": draw(1, 4),
    "one component": draw(7, 1),
    "float64": tuple(array.astype(np.float64) for array in draw(9, 3, 1)),
    "no weight": (np.array([1, 0, 0, 0], np.float32), draw(4, 3)[1]),
    "zero value states": (draw(5, 2)[0], np.zeros((5, 2), np.float32)),
    "one direction": one_direction(12),
    "small": tuple(np.float32(1e-30) * array for array in draw(6, 3)),
    "large": (draw(6, 3)[0], np.float32(1e38) * draw(6, 3)[1]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sink", [True, False])
def test_parts_are_those_of_the_definitions(kind: str, *, sink: bool) -> None:
    weights, values = KINDS[kind]
    parts = found(weights, values, sink=sink)
    assert parts == pytest.approx(literally(weights, values, sink=sink), rel=1e-12, abs=0, nan_ok=True)
    assert parts["total_rest"] >= parts["norm_rest"]


@pytest.mark.parametrize("outweighs", ["sink", "last"])
def test_the_rest_keeps_its_digits_beside_a_part_that_outweighs_it(outweighs: str) -> None:
    """And would not if it were the whole less the other two, in the precision that the output has."""
    weights, values = draw(300, 8)
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
        (lambda a, v: literally(np.ones_like(a), v), set(NAMES)),
        (lambda a, v: literally(a[::-1], v), set(NAMES)),
    ],
    ids=["the sink in the rest", "the last token in the rest", "without weights", "other weights"],
)
def test_wrong_readings_differ(reading: Callable[[np.ndarray, np.ndarray], Parts], changed: set[str]) -> None:
    weights, values = KINDS["many"]
    parts, wrong = found(weights, values), reading(weights, values)
    assert {name for name in NAMES if wrong[name] != pytest.approx(parts[name], rel=1e-3)} == changed


def test_query_heads_share_the_value_states_of_their_kv_head() -> None:
    drawn = [draw(11, 4, seed) for seed in range(6)]
    weights = np.stack([weights for weights, _ in drawn]).reshape(2, 3, 11)
    values = np.stack([values for _, values in drawn[:2]])[:, None]
    parts = output_parts(weights, values)
    for kv_head, head in np.ndindex(2, 3):
        alone = found(weights[kv_head, head], values[kv_head, 0])
        for name in NAMES:
            array = getattr(parts, name)
            assert (array.shape, array.dtype) == ((2, 3), np.float64)
            assert array[kv_head, head] == alone[name]
    assert output_parts(weights[:0], values[:0], sink=False).norm_y_0.shape == (0, 3)


def test_masked_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match=r"values must not be a masked array, got one of shape \(3, 2\)"):
        output_parts(np.full(3, 0.3), np.ma.array(np.ones((3, 2)), mask=False))


@pytest.mark.parametrize(
    ("weights", "values"), [((5,), (4, 2)), ((0,), (0, 2)), ((3,), (3, 0)), ((2, 3), (4, 3, 1)), ((), (1, 2))]
)
def test_what_does_not_fit_together_is_refused(weights: tuple[int, ...], values: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"same n ≥ 1 keys|broadcast"):
        output_parts(np.ones(weights), np.ones(values))
