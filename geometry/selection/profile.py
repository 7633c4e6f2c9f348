"""The all-N profile of a head's selection: the public functions and the checks of their input.

Holds ``selection_profile`` and ``selection_counts``; what they return is declared in ``geometry.quantities``. What does
not belong here: how the numbers are computed (``geometry.selection.host``), all quantities of a layer
(``geometry.layers``) and files.
"""

from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.inputs import GROUP, broadcast_lead, choose_device, iterate_groups, read_heads
from geometry.quantities import SelectionCounts, SelectionProfile
from geometry.selection.host import choose_unit, count_group, make_arrays, prepare_scan, profile_group, restore_lengths
from geometry.selection.scan import PRODUCT_ROWS, choose_width, count_together, make_room, prepare_keys
from geometry.threads import one_blas_thread

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
    One matrix product (n × d × n) for all heads that share value states, and O(n²) for each: on a GPU in float64, with
    at most ``GRAM_BYTES`` and ``STRIP_BYTES`` of ``geometry.selection.torch_scan`` and O(n d) of its memory. All else
    is O(n d) for each head, on the CPU on every device; it needs ``estimate_scratch_bytes`` of memory at most. One BLAS
    thread is used, so that results do not depend on the number of threads; callers may use threads over heads, because
    the kernels do not hold the GIL.

    References
    ----------
    *Geometric Analysis of Token Selection in Multi-Head Attention*, arXiv 2602.01893, eq. 1-20.
    """
    if not _is_positive_sequence(kappas):
        raise ValueError(f"kappas must be a sequence of positive numbers, got {kappas!r}")
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got '{scale}'")
    place = choose_device(weights, values, device)
    alpha, states = read_heads(weights, values)
    with one_blas_thread:
        return _profile_heads(alpha, states, place, kappas=kappas, scale=scale, sink=sink)


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
    alpha, states = read_heads(weights, values)
    with one_blas_thread:
        n = alpha.shape[-1]
        arrays, room = make_arrays(SelectionCounts, broadcast_lead(alpha, states), n, 0), make_room(n)
        for rows, of_keys, outs in _iterate_places(alpha, states, arrays):
            count_group(rows, prepare_keys(of_keys), room, outs)
        return SelectionCounts(**arrays)


def estimate_scratch_bytes(n: int, head_dim: int, kappas: int = 1) -> int:
    """Upper bound of the memory of ``selection_profile`` without inputs and outputs, in bytes, for any number of heads.

    One strip of the cosines, ``STRIP_BYTES`` at most, and what multiplies to it; vectors of n of the heads that are
    scanned together.
    """
    width = choose_width(n)
    of_strip = width * (4 * n + 12 * PRODUCT_ROWS + 8 * head_dim + 100) + 16 * PRODUCT_ROWS * head_dim
    return of_strip + 8 * n * head_dim + n * (count_together(n) * (360 + 64 * kappas) + 12 * GROUP + 100) + 2**18


def _is_positive_sequence(given: Any) -> bool:
    """Whether it is a sequence of finite numbers above 0."""
    return isinstance(given, Sequence | np.ndarray) and all(
        isinstance(x, Real) and 0 < float(x) < np.inf for x in given
    )


def _profile_heads(
    weights: NDArray[Any], values: NDArray[Any], place: str, *, kappas: Sequence[float], scale: str, sink: bool
) -> SelectionProfile:
    """The profile of every head, one KV group after another."""
    arrays = make_arrays(SelectionProfile, broadcast_lead(weights, values), weights.shape[-1], len(kappas))
    for rows, states, outs in _iterate_places(weights, values, arrays):
        keys, scan = prepare_scan(states, place)
        value_scale = float(np.median(keys.norm[int(sink) :]))
        unit, steepness = choose_unit(scale, value_scale, keys.exponent), np.asarray(kappas, np.float64)
        filled = profile_group(rows, keys, scan, outs, kappas=steepness, unit=unit, sink=sink)
        for of_head, out, _ in zip(rows, outs, filled, strict=True):
            out["value_scale"][...], out["weight_sum"][...] = value_scale, of_head.sum(dtype=np.float64)
            restore_lengths(out, keys.exponent)
    return SelectionProfile(**arrays)


def _iterate_places(
    weights: NDArray[Any], values: NDArray[Any], arrays: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[NDArray[Any], NDArray[Any], list[dict[str, NDArray[Any]]]]]:
    """Iterate over KV groups: weights (head, n), value states (n, d), and the places of each head in the arrays."""
    lead = broadcast_lead(weights, values)
    for at, rows, states in iterate_groups(weights, values):
        places = list(zip(*np.unravel_index(at, lead), strict=True)) if lead else [()]
        yield rows, states, [{name: array[(*place, ...)] for name, array in arrays.items()} for place in places]
