"""Metrics averaged over sequences in one pass, against the definitions in exact arithmetic."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from geometry.selection.metrics import METRICS, average_metrics

KEYS = 17

Definition = Callable[[int, int, int], Fraction]


def f(x: Fraction) -> Fraction:
    """F of a metric with the other at 1, eq. 4."""
    return 2 * x / (1 + x)


DEFINITIONS: dict[str, Definition] = {
    "precision": lambda n, _, k_out: Fraction(n, n + k_out),
    "recall": lambda n, k_in, _: Fraction(k_in, n),
    "f_r_max": lambda n, _, k_out: f(Fraction(n, n + k_out)),
    "f_r_min": lambda n, k_in, _: f(Fraction(k_in, n)),
    "specificity": lambda n, _, k_out: Fraction(KEYS - n - k_out, KEYS - n),
    "precision_excess": lambda n, _, k_out: (Fraction(n, n + k_out) - Fraction(n, KEYS)) / (1 - Fraction(n, KEYS)),
}
"""Metrics of one selection from N, K_in and K_out."""


def assert_right(definitions: dict[str, Definition], dtype: type = np.int32, sequences: int = 4) -> None:
    rng, n = np.random.default_rng(sequences), np.arange(1, KEYS)
    k_in, k_out = (rng.integers(0, end + 1, (sequences, 3, KEYS - 1)).astype(dtype) for end in (n, KEYS - n))
    found = average_metrics(k_in, k_out, KEYS)
    assert found.sequences == sequences
    for index, (name, define) in enumerate(definitions.items()):
        exact = np.array(
            [[[define(i + 1, int(a[i]), int(b[i])) for i in range(KEYS - 1)] for a, b in zip(*heads, strict=True)]
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
        ("precision", lambda _, k_in, k_out: Fraction(k_in, max(1, k_in + k_out))),  # keys within the radius
        ("f_r_max", lambda n, _, k_out: f(Fraction(n, n + k_out)) / 2),
        ("specificity", lambda _n, _, k_out: 1 - Fraction(k_out, KEYS)),
        ("precision_excess", lambda n, _, k_out: Fraction(n, n + k_out) - Fraction(n, KEYS)),
    ],
)
def test_other_definitions_would_be_noticed(name: str, wrong: Definition) -> None:
    with pytest.raises(AssertionError, match=name):
        assert_right(DEFINITIONS | {name: wrong})
