"""Powers of 2 as polynomials: their relative error."""

import numpy as np

from geometry import powers
from geometry.accelerate import compile_kernel
from geometry.powers import power_of_two


@compile_kernel
def raise_all(given: np.ndarray, out: np.ndarray) -> None:
    for place in range(given.size):
        out[place] = power_of_two(given[place])


def measure_error(given: np.ndarray, found: np.ndarray) -> float:
    exact = np.exp2(given.astype(np.float64))
    return float(np.abs(found / exact - 1).max())


def test_powers_of_two_have_the_stated_error() -> None:
    given = np.concatenate([np.linspace(-126, 127, 100_001), np.arange(-126, 128)]).astype(np.float32)
    raise_all(given, found := np.empty_like(given))
    assert measure_error(given, found) < 3e-7


def test_a_term_less_is_noticed() -> None:
    given = np.linspace(-0.5, 0.5, 1001).astype(np.float32)
    shorter = sum(float(c) * given.astype(np.float64) ** k for k, c in enumerate(powers.POWERS[:-1]))
    assert measure_error(given, np.asarray(shorter)) > 1e-6
