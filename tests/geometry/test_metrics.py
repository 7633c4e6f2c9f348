"""Metrics averaged in one pass: over sequences in exact arithmetic, over ln N by a loop over the definitions."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from geometry.bounds.lower import Ingredients, margin
from geometry.grids import compute_band_weights, fit_over_ln_n
from geometry.selection.metrics import METRICS, average_levels, average_metrics, follow_cosines

KEYS = 17

Definition = Callable[[int, int, int, int], Fraction]


def f(x: Fraction) -> Fraction:
    """F of a metric with the other at 1, eq. 4."""
    return 2 * x / (1 + x)


DEFINITIONS: dict[str, Definition] = {
    "precision": lambda n, _, k_out, _keys: Fraction(n, n + k_out),
    "recall": lambda n, k_in, _, _keys: Fraction(k_in, n),
    "f_r_max": lambda n, _, k_out, _keys: f(Fraction(n, n + k_out)),
    "f_r_min": lambda n, k_in, _, _keys: f(Fraction(k_in, n)),
    "specificity": lambda n, _, k_out, keys: Fraction(keys - n - k_out, keys - n),
    "precision_excess": lambda n, _, k_out, keys: (
        (Fraction(n, n + k_out) - Fraction(n, keys)) / (1 - Fraction(n, keys))
    ),
}
"""Metrics of one selection from N, K_in, K_out and the number of keys."""


def assert_right(definitions: dict[str, Definition], dtype: type = np.int32, sequences: int = 4) -> None:
    rng, n = np.random.default_rng(sequences), np.arange(1, KEYS)
    k_in, k_out = (rng.integers(0, end + 1, (sequences, 3, KEYS - 1)).astype(dtype) for end in (n, KEYS - n))
    found = average_metrics(k_in, k_out, KEYS)
    assert found.sequences == sequences
    for index, (name, define) in enumerate(definitions.items()):
        exact = np.array(
            [[[define(i + 1, int(a[i]), int(b[i]), KEYS) for i in range(KEYS - 1)] for a, b in zip(*heads, strict=True)]
             for heads in zip(k_in, k_out, strict=True)]
        )  # fmt: skip
        mean = exact.sum(axis=0) / sequences
        squares = ((exact - mean) ** 2).sum(axis=0)
        for array, right in ((found.mean, mean), (found.squares, squares)):
            np.testing.assert_allclose(array[index], right.astype(float), rtol=1e-12, atol=1e-14, err_msg=name)
        np.testing.assert_allclose(found.over_heads[:, index], exact.sum(axis=1).astype(float), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.int32, np.uint16])
@pytest.mark.parametrize("sequences", [1, 4])
def test_equal_the_definitions(dtype: type, sequences: int) -> None:
    assert list(DEFINITIONS) == list(METRICS)
    assert_right(DEFINITIONS, dtype, sequences)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("precision", lambda _, k_in, k_out, _keys: Fraction(k_in, max(1, k_in + k_out))),  # keys within the radius
        ("f_r_max", lambda n, _, k_out, _keys: f(Fraction(n, n + k_out)) / 2),
        ("specificity", lambda _n, _, k_out, keys: 1 - Fraction(k_out, keys)),
        ("precision_excess", lambda n, _, k_out, keys: Fraction(n, n + k_out) - Fraction(n, keys)),
    ],
)
def test_other_definitions_would_be_noticed(name: str, wrong: Definition) -> None:
    with pytest.raises(AssertionError, match=name):
        assert_right(DEFINITIONS | {name: wrong})


def average_slowly(
    given: dict[str, np.ndarray], unit: float, at: tuple[int, int], above: float = 0
) -> dict[str, float]:
    """Levels of one sequence and head; Δ counts as positive above ``above``."""
    curve = {name: array[at].astype(float) for name, array in given.items()}
    n, weights = np.arange(1, KEYS), compute_band_weights(KEYS)
    with np.errstate(invalid="ignore", divide="ignore"):
        delta = curve["a_min_in"] ** 2 - 2 * curve["a_max_out"] * curve["s_in"] * curve["rho_out"]
        breadth = curve["a_max_in"] + curve["a_max_out"] + curve["s_in"]
        known = (breadth > 0) & (unit > 0) & ~np.isnan(delta)
        curves = {
            "recall_first": curve["k_in"] / n,
            "specificity": 1 - curve["k_out"] / (KEYS - n),
            "r_min": np.where(curve["norm_s"] > 0, curve["r_min"] / curve["norm_s"], np.nan),
            "premise_share": np.where(known, delta > above, np.nan),
        }
    levels = {}
    for name, values in curves.items():
        there, share = ~np.isnan(values), weights[:, 1 if name.endswith("first") else 0]
        levels[name] = sum(values[there] * share[there]) / sum(share[there]) if share[there].sum() else np.nan
    return levels


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_levels_are_weighted_means_of_what_is_known(dtype: type) -> None:
    rng, n = np.random.default_rng(5), np.arange(1, KEYS)
    given: dict[str, Any] = {
        name: rng.integers(0, end + 1, (3, 2, KEYS - 1)) for name, end in (("k_in", n), ("k_out", KEYS - n))
    }
    names = ("r_min", "norm_s", "a_min_in", "a_max_out", "s_in", "rho_out", "a_max_in")
    given |= {name: rng.uniform(0.2, 1, (3, 2, KEYS - 1)).astype(dtype) for name in names}
    given["norm_s"][0, 0, 3:7], given["s_in"][1, 1, ::2], given["a_min_in"][2, 0] = 0, np.nan, np.nan
    unit = np.array([[1.0, 0.5], [2.0, 1.0], [1.0, 0.0]])
    parts = Ingredients(**{name: given[name] for name in names[2:]})
    margins = margin(parts, unit[..., None])
    levels = average_levels(given["k_in"], given["k_out"], given["r_min"], given["norm_s"], margins, KEYS)
    for at in np.ndindex(3, 2):
        for name, value in average_slowly(given, float(unit[at]), at).items():
            np.testing.assert_allclose(levels[name][at], value, rtol=1e-12, err_msg=f"{name} {at}")
    assert np.isnan(levels["premise_share"][[2, 2], [0, 1]]).all()  # no margin; no unit
    assert levels["premise_share"][0, 0] != average_slowly(given, 1, (0, 0), above=0.5)["premise_share"]  # control


def test_cosines_are_followed_over_ln_n() -> None:
    rng = np.random.default_rng(2)
    cos_sink, cos_last, a_0 = rng.uniform(-1, 1, (3, 3, 2, KEYS - 1)).astype(np.float32)
    a_0[0, :, :4], a_0[1, 0], cos_sink[1, 1, 2], cos_sink[2] = np.nan, np.nan, np.nan, np.nan
    course = follow_cosines(cos_sink, cos_last, a_0)
    for at in np.ndindex(3, 2):
        faced = [float(cos) for cos, a in zip(cos_sink[at], a_0[at], strict=True) if not np.isnan(a + cos)]
        assert course["cos_sink_max"][at] == max(faced) if faced else np.isnan(course["cos_sink_max"][at])
        for name, curve in (("cos_sink", cos_sink[at]), ("cos_last", cos_last[at])):
            ends = course[f"{name}_level"][at], course[f"{name}_change"][at]
            np.testing.assert_allclose(ends, fit_over_ln_n(curve), rtol=1e-12)
    assert not np.isnan(course["cos_sink_max"][0]).any()
    assert np.nanmax(cos_sink[0]) > course["cos_sink_max"][0].max()  # control: where the sink is not selected
