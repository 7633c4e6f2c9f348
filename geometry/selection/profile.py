"""The all-N profile of a head's selection: the public functions and the checks of their input.

Holds ``selection_profile`` and ``selection_counts``; what they return is declared in ``geometry.quantities``. What does
not belong here: how the numbers are computed (``geometry.selection.host`` on the CPU, ``geometry.selection.cuda`` on a
GPU), all quantities of a layer (``geometry.selection.layers``) and files.
"""

from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.inputs import (
    broadcast_lead,
    check_heads,
    choose_device,
    convert_array,
    convert_tensor,
    iterate_heads,
    reject_masked,
)
from geometry.quantities import SelectionCounts, SelectionProfile, list_declared
from geometry.selection.head_kernels import CURVES, TILE_ROWS, Counts, Profile
from geometry.selection.host import (
    Keys,
    choose_unit,
    fill_head_counts,
    fill_head_profile,
    make_room,
    pad,
    prepare_keys,
    restore_lengths,
)
from geometry.threads import one_blas_thread

__all__ = ["SCALES", "Scale", "SelectionCounts", "SelectionProfile", "selection_counts", "selection_profile"]


Scale = Literal["unit", "raw"]
"""Scale of the value states in the bounds: divided by C of the head, or not divided, as the paper prints them."""
SCALES: tuple[str, ...] = get_args(Scale)


def selection_profile(
    weights: ArrayLike,
    values: ArrayLike,
    *,
    kappas: Sequence[float] = (0.5,),
    scale: Scale = "unit",
    sink: bool = True,
    device: str | None = None,
) -> SelectionProfile:
    """Counts of Precision and Recall, the geometry of s_N and the ingredients of the bounds for every N.

    Parameters
    ----------
    weights
        Attention weights α of one query over the keys it may attend to, in order of position, (…, n); each row is a
        softmax. Rows with a learned sink sum to less than 1. Keys that the mask hides must be left out, not set to 0.
        A NumPy array, but not a masked array, or a PyTorch tensor.
    values
        Value states v of the same keys, (…, n, d). Leading axes broadcast against those of ``weights``, so query heads
        of one KV group share theirs: weights (kv_head, group, n), values (kv_head, 1, n, d).
    kappas
        Concentration constants κ of the upper bounds; the paper gives none. Lower bounds need no list: they follow
        from the ingredients for any κ.
    scale
        Whether the bounds are computed from values divided by C of the head (``unit``), as in Assumption 1, or from the
        values as given (``raw``), in which case the bounds, unlike Precision and Recall, depend on the unit of the
        values.
    sink
        Whether the first key is position 0 of the sequence. If a window hides position 0 there is no sink and every
        sink quantity is NaN.
    device
        ``cuda`` or ``cuda:1`` to compute there, ``cpu`` to compute here; by default, where ``values`` are.

    Returns
    -------
    SelectionProfile
        NumPy arrays of shape (…, n − 1), on every device. Upper bounds are NaN where J is empty, where B = 0, and in
        unit scale where C = 0. Counts are exact: they equal a float64 evaluation of the definitions, up to differences
        that float64 cannot resolve. Ties between weights go to the lower position.

    Raises
    ------
    ValueError
        If shapes disagree, n < 2, weights are negative, not finite, or sum to 0 or to more than 1, values are not
        finite floating-point numbers, either is a masked array, a κ is not positive, or ``scale`` is unknown.
    RuntimeError
        If ``device`` is a GPU that PyTorch cannot use.

    Notes
    -----
    On the CPU one float32 matrix product (n × d × n) per head, and O(n²) after it, with
    ``estimate_scratch_bytes`` of memory. Heads are computed one by one on one BLAS thread, so that results do not
    depend on the number of threads; callers may use threads over heads, because the kernels do not hold the GIL.

    References
    ----------
    *Geometric Analysis of Token Selection in Multi-Head Attention*, arXiv 2602.01893, eq. 1-20.
    """
    if not _is_positive_sequence(kappas):
        msg = f"kappas must be a sequence of positive numbers, got {kappas!r}"
        raise ValueError(msg)
    if scale not in SCALES:
        msg = f"scale must be one of {', '.join(SCALES)}, got '{scale}'"
        raise ValueError(msg)
    weights, values = reject_masked("weights", weights), reject_masked("values", values)
    place = choose_device(weights, values, device)
    if place != "cpu":
        from geometry.selection.cuda import profile_of_heads

        on_device = convert_tensor(weights, place), convert_tensor(values, place)
        check_heads(*on_device)
        return SelectionProfile(**profile_of_heads(*on_device, kappas=kappas, scale=scale, sink=sink))
    alpha, states = convert_array(weights), convert_array(values)
    check_heads(alpha, states)
    with one_blas_thread:
        return _profile_heads(alpha, states, kappas=kappas, scale=scale, sink=sink)


def selection_counts(weights: ArrayLike, values: ArrayLike) -> SelectionCounts:
    """K_in, K_out and the radii only, for every N, in half the time of ``selection_profile``.

    From them follow Precision N/(N + K_out), Recall K_in/N and F (Definitions 1-3). Parameters and errors as for
    ``selection_profile``; computed on the CPU with all BLAS threads of the process, on whose number the results do not
    depend.

    Returns
    -------
    SelectionCounts
        NumPy arrays of shape (…, n − 1), the same as those of ``selection_profile``.
    """
    alpha, states = convert_array(reject_masked("weights", weights)), convert_array(reject_masked("values", values))
    check_heads(alpha, states)
    with one_blas_thread:
        return _count_heads(alpha, states)


def estimate_scratch_bytes(n: int, head_dim: int) -> int:
    """Upper bound of the memory of ``selection_profile`` without inputs and outputs, in bytes, for any number of heads.

    Per component of a value state: the value states in a wider type and sorted, their directions in order of position
    and sorted, and these transposed, twice if n is not a multiple of ``LANES`` (32 bytes at most). One tile of cosines
    with its left factor. Vectors of n, each of a memory page at least.
    """
    width, rows = pad(n), 1 + min(TILE_ROWS, n - 1)
    return 32 * width * head_dim + 4 * rows * (width + head_dim) + 512 * n + 2**17


def _is_positive_sequence(given: Any) -> bool:
    """Whether it is a sequence of finite numbers above 0."""
    return isinstance(given, Sequence | np.ndarray) and all(
        isinstance(x, Real) and 0 < float(x) < np.inf for x in given
    )


def _profile_heads(
    weights: NDArray[Any], values: NDArray[Any], *, kappas: Sequence[float], scale: str, sink: bool
) -> SelectionProfile:
    """The profile of every head, one by one, on the CPU."""
    n, d = weights.shape[-1], values.shape[-1]
    arrays, room = make_arrays(SelectionProfile, broadcast_lead(weights, values), n, len(kappas)), make_room(n, d)
    for head, of_head, keys in _iterate_keys(weights, values):
        out = {name: array[(*head, ...)] for name, array in arrays.items()}
        out["value_scale"][()] = np.median(keys.norm[int(sink) :])
        out["weight_sum"][()] = of_head.sum(dtype=np.float64)
        unit, rows = (
            choose_unit(scale, float(out["value_scale"]), keys.exponent),
            Profile(*(out[name] for name in CURVES)),
        )
        fill_head_profile(of_head, keys, room, rows, kappas=np.asarray(kappas, np.float64), unit=unit, sink=sink)
        restore_lengths(out, keys.exponent)
    return SelectionProfile(**arrays)


def _count_heads(weights: NDArray[Any], values: NDArray[Any]) -> SelectionCounts:
    """The counts of every head, one by one, on the CPU."""
    n, d = weights.shape[-1], values.shape[-1]
    arrays, room = make_arrays(SelectionCounts, broadcast_lead(weights, values), n, 0), make_room(n, d)
    for head, of_head, keys in _iterate_keys(weights, values):
        out = {name: array[head] for name, array in arrays.items()}
        fill_head_counts(of_head, keys, room, Counts(**out))
        restore_lengths(out, keys.exponent)
    return SelectionCounts(**arrays)


def _iterate_keys(weights: NDArray[Any], values: NDArray[Any]) -> Iterator[tuple[Any, NDArray[Any], Keys]]:
    """Iterate over heads: index along the leading axes, weights (n,) and keys, which heads of one KV group share."""
    keys, before = None, -1
    for head, of_head, states in iterate_heads(weights, values):
        if keys is None or states.ctypes.data != before:
            keys, before = prepare_keys(states), states.ctypes.data
        yield head, of_head, keys


def make_arrays(result: type[SelectionCounts], lead: tuple[int, ...], n: int, kappas: int) -> dict[str, NDArray[Any]]:
    """Memory for the arrays of heads (…) with n keys."""
    lengths, made = {"kappa": kappas, "n": n - 1}, {}
    for name, quantity in list_declared(result).items():
        shape = (*lead, *(lengths[axis] for axis in quantity.axes if axis in lengths))
        made[name] = np.empty(shape, np.int32 if quantity.dtype == "int32" else np.float64)
    return made
