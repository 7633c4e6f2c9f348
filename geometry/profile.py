"""The all-N profile of a head's selection: the public functions and the checks of their input.

Holds ``selection_profile`` and ``selection_counts``; what they return is declared in ``geometry.quantities``. What does
not belong here: how the numbers are computed (``geometry.host`` on the CPU, ``geometry.cuda`` on a GPU), Dask
(``geometry.lazy``) and files.
"""

import re
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.host import count_tile_rows, fill_head_counts, fill_head_profile
from geometry.quantities import Quantity, SelectionCounts, SelectionProfile, list_declared
from geometry.threads import one_blas_thread

__all__ = ["SCALES", "Scale", "SelectionCounts", "SelectionProfile", "selection_counts", "selection_profile"]

ROW_SUM_SLACK = 2.0**-7
"""Largest excess of the sum of a row over 1: weights in half precision are accepted."""

LEAST_ROW_SUM = 1e-120
"""Least sum of a row: below it the squares underflow in float64."""

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
    depend on the number of threads; callers may use threads over heads (``geometry.lazy``).

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
    weights, values = _reject_masked("weights", weights), _reject_masked("values", values)
    place = _choose_device(weights, values, device)
    if place != "cpu":
        from geometry.cuda import profile_of_heads

        on_device = _convert_tensor(weights, place), _convert_tensor(values, place)
        _check(*on_device)
        return SelectionProfile(**profile_of_heads(*on_device, kappas=kappas, scale=scale, sink=sink))
    alpha, states = _convert_array(weights), _convert_array(values)
    _check(alpha, states)
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
    alpha, states = _convert_array(_reject_masked("weights", weights)), _convert_array(_reject_masked("values", values))
    _check(alpha, states)
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


def _choose_device(weights: Any, values: Any, device: str | None) -> str:
    """Where to compute: ``cpu``, or the name of a CUDA device."""
    given = [str(array.device) for array in (values, weights) if getattr(array, "is_cuda", False)]
    place = str(device) if device is not None else given[0] if given else "cpu"
    if not re.fullmatch(r"cpu(:0)?|cuda(:\d+)?", place):
        msg = f"device must be 'cpu', 'cuda' or 'cuda:N' with a device number N, got '{place}'"
        raise ValueError(msg)
    return place.removesuffix(":0") if place.startswith("cpu") else place


def _convert_tensor(given: Any, place: str) -> Any:
    """Convert to a tensor on a GPU, at least in single precision: sums in half precision are rounded."""
    import torch

    if not torch.cuda.is_available():
        msg = f"there is no CUDA device that PyTorch can use for device='{place}'; leave device out to use the CPU"
        raise RuntimeError(msg)
    if not _is_tensor(given):
        given = np.ascontiguousarray(_convert_dtype(np.asarray(given)))
    return _widen_tensor(torch.as_tensor(given, device=place).detach())


def _reject_masked(name: str, given: Any) -> Any:
    """Return the argument, or raise a ValueError for a masked array: NumPy would use the masked numbers."""
    if np.ma.isMaskedArray(given):
        msg = f"{name} must not be a masked array, got one of shape {given.shape}; leave out the keys that it hides"
        raise ValueError(msg)
    return given


def _convert_array(given: Any) -> NDArray[Any]:
    """Convert an array or a tensor to a NumPy array."""
    if _is_tensor(given):  # NumPy has no bfloat16
        given = _widen_tensor(given.detach().cpu())
    return np.asarray(_reject_masked("input", given))


def _is_tensor(array: Any) -> bool:
    """Whether it is a PyTorch tensor."""
    return hasattr(array, "detach")


def _widen_tensor(tensor: Any) -> Any:
    """Convert a tensor in half precision to single precision; others are returned unchanged."""
    return tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor


def _check(weights: Any, values: Any, *, least_keys: int = 2) -> None:
    """Raise a ValueError if the arrays or tensors have invalid dtypes, shapes or numbers."""
    for name, array in (("weights", weights), ("values", values)):
        if not (array.is_floating_point() if _is_tensor(array) else np.issubdtype(array.dtype, np.floating)):
            wanted = "(…, n)" if name == "weights" else "(…, n, d)"
            msg = f"{name} must be floating-point numbers {wanted}, got {array.dtype} {tuple(array.shape)}"
            raise ValueError(msg)
    shape, states = tuple(weights.shape), tuple(values.shape)
    if len(shape) < 1 or shape[-1] < least_keys:
        msg = f"weights must have the shape (…, n) with n ≥ {least_keys} keys, got {shape}"
        raise ValueError(msg)
    if len(states) < 2 or states[-2] != shape[-1] or states[-1] < 1:
        msg = f"values must have the shape (…, {shape[-1]}, d) to match weights {shape}, got {states}"
        raise ValueError(msg)
    try:
        np.broadcast_shapes(shape[:-1], states[:-2])
    except ValueError:
        msg = f"values must have leading axes that broadcast against those of weights {shape}, got {states}"
        raise ValueError(msg) from None
    if 0 not in shape + states:
        _check_numbers(weights, values)


def _check_numbers(weights: Any, values: Any) -> None:
    """Raise a ValueError if weights are not rows of a softmax or values are not finite; neither may be empty."""
    sums = weights.sum(-1) if _is_tensor(weights) else weights.sum(-1, dtype=np.float64)
    finite = (values.min() > -np.inf) & (values.max() < np.inf)  # false for NaN
    rows = (weights.min() >= 0) & (sums.min() > LEAST_ROW_SUM) & (sums.max() <= 1 + ROW_SUM_SLACK)
    if bool(finite & rows):  # evaluated once, because it waits for the GPU
        return
    if not bool(finite):
        shape = tuple(values.shape)
        msg = f"values of shape {shape} must be finite; the forward pass overflowed, use bfloat16 or float32"
        raise ValueError(msg)
    msg = (
        f"weights of shape {tuple(weights.shape)} must be rows (…, n) of a softmax: not negative, no NaN, "
        "each sum about 1, or less with a learned sink, but not 0"
    )
    raise ValueError(msg)


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
            _convert_dtype(weights[head]),
            _convert_dtype(values[head]),
            {name: array[(*head, ...)] for name, array in arrays.items()},
            **settings,
        )
    return result(**arrays)


def _convert_dtype(array: NDArray[Any]) -> NDArray[Any]:
    """Convert floating-point arrays to float32 or float64, the dtypes of the kernels; others are unchanged."""
    if not np.issubdtype(array.dtype, np.floating):
        return array
    single = array.dtype.itemsize < np.dtype(np.float64).itemsize
    return array.astype(np.float32 if single else np.float64, copy=False)


def _make_unknown(quantity: Quantity, lead: tuple[int, ...], n: int, kappas: int) -> NDArray[Any]:
    """An array of a profile filled with missing values: −1 for counts, NaN for all others."""
    lengths = {"kappa": kappas, "n": n - 1}
    shape = (*lead, *(lengths[axis] for axis in quantity.axes if axis in lengths))
    return np.full(shape, quantity.fill, np.int32 if quantity.dtype == "int32" else np.float64)
