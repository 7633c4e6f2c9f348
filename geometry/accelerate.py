"""Compilation of kernels with numba: all compiler options are set here.

Kernels release the GIL, so that threads over heads run in parallel. They are cached on disk, so that only the first run
of an installed version compiles them. They divide as NumPy does, because a check for division by zero would prevent
loops from being vectorised.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import numba
from numba.extending import intrinsic

P = ParamSpec("P")
R = TypeVar("R")

_ALWAYS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}

_BORROWING: dict[str, Any] = {**_ALWAYS, "_nrt": False}
"""Options of kernels that neither allocate arrays nor count references to them.

Such a kernel must not return an array or a view of one: nothing would keep its memory."""

_FINITE = ("nnan", "nsz")
"""Fast-math flags that allow vectorising a maximum: there is no NaN, and the sign of zero does not matter."""

_SUMS = {"nnan", "nsz", "reassoc", "contract"}
"""Fast-math flags that allow vectorising a sum: terms may be added in any order."""


class Compiler(Protocol):
    """Compiles a function, which keeps its parameters."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """The compiled function."""


compile_kernel: Compiler = numba.njit(**_ALWAYS)
"""Compile a kernel: without the GIL, cached on disk, with strict IEEE 754 rounding.

Kernels that compute the same error bound must round it identically; otherwise a key is counted twice or never.
"""

compile_row_kernel: Compiler = numba.njit(**_BORROWING)
"""Compile a kernel that is called for every row: as ``compile_kernel``, without counting references to arrays.

It cannot allocate arrays. Counting takes longer than a pass over a thousand numbers, because it is atomic: once for
each array that is passed to a kernel that calls others, and again when it returns.
"""

compile_inline_kernel: Compiler = numba.njit(**_BORROWING, forceinline=True)
"""Compile a part of a kernel that is called for every row: as ``compile_row_kernel``, inlined into its callers.

To pass a tuple of arrays copies dozens of numbers.
"""

compile_sum_kernel: Compiler = numba.njit(**_ALWAYS, fastmath=_SUMS, forceinline=True)
"""Compile a kernel of float64 sums whose last digits do not matter: as ``compile_kernel``, with vectorised sums.

The kernel is inlined into its callers. Otherwise the process that compiles the callers and the processes that load them
from disk would call different copies of it, whose last digits differ.
"""

compile_row_sum_kernel: Compiler = numba.njit(**_BORROWING, fastmath=_SUMS, forceinline=True)
"""Compile a kernel of sums that is called for every row: as ``compile_sum_kernel`` and ``compile_row_kernel``."""


def _prefer_wide_vectors(_context: Any) -> Any:
    """The type and the code of ``widen_vectors``."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')  # llvmlite's own ``add`` rejects it
        return context.get_dummy_value()

    return numba.types.void(), generate


widen_vectors = cast(Callable[[], None], intrinsic(_prefer_wide_vectors))
"""Let the loops of the calling kernel use vectors of 512 bits, where the compiler may prefer 256.

Where a kernel sums in any order, the width determines how its sums are rounded, in the last digits of float32.
"""


def _make_selection(comparison: str, name: str) -> Any:
    """An intrinsic that returns the first of two floats if it compares so with the second, and otherwise the second."""

    def select(_context: Any, a: Any, b: Any) -> Any:
        def generate(_: Any, builder: Any, _signature: Any, pair: Any) -> Any:
            return builder.select(builder.fcmp_ordered(comparison, *pair, flags=_FINITE), *pair, flags=_FINITE)

        return a(a, b), generate

    select.__name__ = name
    return intrinsic(select)


larger = cast(Callable[[Any, Any], Any], _make_selection(">", "larger"))
"""The larger of two floats of the same type, neither NaN. Loops over it are vectorised, unlike loops over ``max``."""

smaller = cast(Callable[[Any, Any], Any], _make_selection("<", "smaller"))
"""The smaller of two floats of the same type, neither NaN; see ``larger``."""
