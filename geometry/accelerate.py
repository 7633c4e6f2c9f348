"""The one place that knows numba's options.

Kernels are compiled without the GIL, so that threads over heads run side by side; cached on disk, so that only the
first run of an installed version pays for compilation; and divide as NumPy does, for a check for zero would keep a loop
from being vectorised. What does not belong here: any kernel.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.extending import intrinsic

P = ParamSpec("P")
R = TypeVar("R")

_ALWAYS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}

_FINITE = ("nnan", "nsz")
"""Licence the compiler needs to vectorise a maximum: no NaN is met, and the sign of zero does not matter."""

_SUMS = {"nnan", "nsz", "reassoc", "contract"}
"""Licence the compiler needs to vectorise a sum: terms may be added in any order."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel: no GIL, cached on disk, every rounding as IEEE 754 has it.

    Kernels that compute the same error bound must round it alike, or a key is counted twice or never.
    """
    decorated: Callable[P, R] = numba.njit(**_ALWAYS)(function)
    return decorated


def compiled_sums(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel of float64 sums whose last digits do not matter: as ``compiled``, with sums in vector form.

    It becomes a part of the kernels that call it. A call would go to a copy of its own in the process that compiles
    them, and to another, with other last digits, in those that read them from the disk.
    """
    decorated: Callable[P, R] = numba.njit(**_ALWAYS, fastmath=_SUMS, forceinline=True)(function)
    return decorated


@intrinsic
def _larger(_context: Any, a: Any, b: Any) -> Any:
    """The typing and the code of ``larger``."""

    def generate(_: Any, builder: Any, _signature: Any, pair: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *pair, flags=_FINITE), *pair, flags=_FINITE)

    return a(a, b), generate


larger = cast(Callable[[Any, Any], Any], _larger)
"""The larger of two floats of one type, neither NaN, for kernels: unlike with ``max``, loops over it are vectorised."""
