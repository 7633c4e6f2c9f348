"""The all-N profile of a head's selection: the public functions and the checks of their input.

Holds ``selection_profile`` and ``selection_counts``; what they return is declared in ``geometry.quantities``. What does
not belong here: how the numbers are computed (``geometry.selection.host`` on the CPU, ``geometry.selection.cuda`` on a
GPU), Dask (``geometry.lazy.selection``) and files.
"""

from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.inputs import check_heads, choose_device, convert_array, convert_dtype, convert_tensor, reject_masked
from geometry.quantities import Quantity, SelectionCounts, SelectionProfile, list_declared
from geometry.selection.host import count_tile_rows, fill_head_counts, fill_head_profile
from geometry.threads import one_blas_thread

__all__ = ["SCALES", "Scale", "SelectionCounts", "SelectionProfile", "selection_counts", "selection_profile"]


Scale = Literal["unit", "raw"]
"""Scale of the value states in the bounds: divided by C of the head, or not divided, as the paper prints them."""
SCALES: tuple[str, ...] = get_args(Scale)

Result = TypeVar("Result", bound=SelectionCounts)


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
    On the CPU one float32 matrix product (n × d × n) per head, half of another for ρ_out, and O(n²) after them, with
    ``estimate_scratch_bytes`` of memory. Heads are computed one by one on one BLAS thread, so that results do not
    depend on the number of threads; callers may use threads over heads (``geometry.lazy.selection``).

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
        return _compute_heads(SelectionProfile, alpha, states, kappas=kappas, scale=scale, sink=sink)


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
    return _compute_heads(SelectionCounts, alpha, states)


def estimate_scratch_bytes(n: int, head_dim: int) -> int:
    """Upper bound of the memory of ``selection_profile`` without inputs and outputs, in bytes, for any number of heads.

    Per component of a value state: the sorted value states in the given dtype and in float32, a unit vector and its
    temporaries (32 bytes at most). One tile of inner products with the sums of its rows. Vectors of n.
    """
    rows = count_tile_rows(n)
    return 32 * n * head_dim + rows * (4 * n + 20 * head_dim) + 512 * n + 2**16


def _is_positive_sequence(given: Any) -> bool:
    """Whether it is a sequence of finite numbers above 0."""
    return isinstance(given, Sequence | np.ndarray) and all(
        isinstance(x, Real) and 0 < float(x) < np.inf for x in given
    )


def _compute_heads(result: type[Result], weights: NDArray[Any], values: NDArray[Any], **settings: Any) -> Result:
    """Compute the result of every head, one by one, on the CPU."""
    n = weights.shape[-1]
    lead = np.broadcast_shapes(weights.shape[:-1], values.shape[:-2])
    weights = np.broadcast_to(weights, (*lead, n))
    values = np.broadcast_to(values, (*lead, *values.shape[-2:]))
    kappas = len(settings.get("kappas", ()))
    arrays = {name: _make_unknown(quantity, lead, n, kappas) for name, quantity in list_declared(result).items()}
    fill = fill_head_profile if result is SelectionProfile else fill_head_counts
    for head in np.ndindex(lead):
        fill(
            convert_dtype(weights[head]),
            convert_dtype(values[head]),
            {name: array[(*head, ...)] for name, array in arrays.items()},
            **settings,
        )
    return result(**arrays)


def _make_unknown(quantity: Quantity, lead: tuple[int, ...], n: int, kappas: int) -> NDArray[Any]:
    """An array of a profile filled with missing values: −1 for counts, NaN for all others."""
    lengths = {"kappa": kappas, "n": n - 1}
    shape = (*lead, *(lengths[axis] for axis in quantity.axes if axis in lengths))
    return np.full(shape, quantity.fill, np.int32 if quantity.dtype == "int32" else np.float64)
