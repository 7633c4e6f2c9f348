"""The one place that knows numba's options.

Kernels are compiled without the GIL, so that threads over heads run side by side, and cached on disk, so that only the
first run of an installed version pays for compilation. What does not belong here: any kernel.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")

_FINITE = {"nnan", "nsz"}
"""Licence the compiler needs to vectorise a maximum: inputs hold no NaN, and the sign of zero does not matter.

Never ``contract``: kernels that compute the same error bound must round it alike, or a key is counted twice or never.
"""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel: no GIL, cached on disk, IEEE arithmetic."""
    decorated: Callable[P, R] = numba.njit(nogil=True, cache=True)(function)
    return decorated


def compiled_finite(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel that meets no NaN: as ``compiled``, with maxima in vector form; every rounding stays IEEE."""
    decorated: Callable[P, R] = numba.njit(nogil=True, cache=True, fastmath=_FINITE)(function)
    return decorated
