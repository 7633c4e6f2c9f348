"""Powers of 2 as polynomials, which are vectorised in compiled loops, unlike ``math.exp``."""

import math

import numpy as np

from geometry.accelerate import compile_row_sum_kernel

EXPONENT_BITS = 23  # Position of the exponent in a float32

POWERS = tuple(np.float32(math.log(2.0) ** k / math.factorial(k)) for k in range(7))
"""Coefficients of the Taylor polynomial of 2^x, the relative error of which is below 1.3·10⁻⁷ for |x| ≤ 1/2,
and with that of rounding below 3·10⁻⁷."""


@compile_row_sum_kernel
def power_of_two(power: np.float32) -> np.float32:
    """2^power for powers from -126 to 127: 2^whole · 2^part, the first by its bits."""
    whole = np.rint(power)
    part = power - whole
    c0, c1, c2, c3, c4, c5, c6 = POWERS
    exponential = c0 + part * (c1 + part * (c2 + part * (c3 + part * (c4 + part * (c5 + part * c6)))))
    bits = np.int32((np.int32(whole) + np.int32(127)) << np.int32(EXPONENT_BITS))
    return np.float32(exponential * bits.view(np.float32))
