"""The declarations are true of what is computed."""

import math

import numpy as np
import pytest

from geometry import selection_profile
from geometry.bounds.scale_free import scale_free_lower_bounds
from geometry.quantities import MODEL_UNITS, SELECTION, Quantity
from geometry.selection.concentration import concentration
from geometry.selection.outputs import output_parts, selection_errors
from tests.geometry.draws import HEADS, Head, random_head


def outside(quantity: Quantity, found: np.ndarray, columns: dict[str, np.ndarray]) -> np.ndarray:
    """Where numbers are outside their declared domain; missing ones never are."""
    low, high = (
        np.asarray(eval(end, {"__builtins__": {}}, columns) if isinstance(end, str) else end, float)
        for end in (quantity.low, quantity.high)
    )
    trifle = 1e-37 if quantity.unit == MODEL_UNITS else 0.0
    with np.errstate(invalid="ignore"):
        lowest, highest = (
            np.where(np.isfinite(end), end + sign * (quantity.slack * np.abs(end) + trifle), end)
            for sign, end in ((-1, low), (1, high))
        )
        below = found < lowest if quantity.closed in {"both", "left"} else found <= lowest
        above = found > highest if quantity.closed in {"both", "right"} else found >= highest
    return below | above | np.isinf(found)


def columns_of(weights: np.ndarray, values: np.ndarray, *, sink: bool) -> dict[str, np.ndarray]:
    """All that is computed of one head, as it is stored, and n, n_keys."""
    n = len(weights)
    profile = selection_profile(weights, values, sink=sink, kappas=(0.5, 50))
    bounds = scale_free_lower_bounds(weights, np.linalg.norm(values.astype(float), axis=1), values.shape[1])
    found = vars(profile) | vars(output_parts(weights, values, sink=sink))
    found |= vars(concentration(weights, values, sink=sink)) | vars(selection_errors(weights, values))
    found |= {f"{name}_scale_free": array for name, array in vars(bounds).items()}
    stored = {name: np.asarray(array).astype(SELECTION[name].dtype) for name, array in found.items()}
    return stored | {"n": np.arange(1, n), "n_keys": np.array(n)}


@pytest.mark.parametrize("kind", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("sink", [True, False])
def test_what_is_computed_is_in_its_domain_or_may_be_missing(kind: Head, sink: bool) -> None:
    columns = columns_of(*kind(40, 6, 3), sink=sink)
    for name in columns.keys() - {"n", "n_keys"}:
        quantity, found = SELECTION[name], columns[name]
        assert not outside(quantity, found, columns).any(), name
        absent = np.isnan(found) if math.isnan(quantity.fill) else found == quantity.fill
        assert quantity.missing is not None or not absent.any(), name


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("k_in", lambda columns: columns["n"] + 1),
        ("k_out", lambda columns: columns["n_keys"] - columns["n"] + 1),
        ("r_min", lambda columns: -columns["r_min"]),
        ("precision_upper", lambda columns: 1 - 1 / (2 * columns["n"] + 1)),
        ("a_max_in", lambda columns: columns["s_in"] * 1.001),
        ("norm_s", lambda _: np.array(np.inf)),
        ("weight_sum", lambda _: np.array(0.0)),
    ],
)
def test_what_is_not_would_be_noticed(name: str, changed: object) -> None:
    columns = columns_of(*random_head(40, 6, 3), sink=True)
    assert outside(SELECTION[name], changed(columns), columns).any()  # type: ignore[operator]
