"""The input of the public functions: weights and value states of heads, converted and checked.

Holds the choice of the device, conversions of arrays and tensors, and the checks of what they hold.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROW_SUM_SLACK = 2.0**-7  # Largest excess of the sum of a row over 1: weights in half precision are accepted
GROUP = 16  # Most heads that are computed together because they share value states, as queries of one KV head do
LEAST_ROW_SUM = 1e-120  # Least sum of a row: below it the squares underflow in float64


def choose_device(weights: Any, values: Any, device: str | None) -> str:
    """Where to compute: ``cpu``, or the name of a CUDA device; a RuntimeError if PyTorch can use none."""
    given = [str(array.device) for array in (values, weights) if getattr(array, "is_cuda", False)]
    place = str(device) if device is not None else given[0] if given else "cpu"
    if not re.fullmatch(r"cpu(:0)?|cuda(:\d+)?", place):
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:N' with a device number N, got '{place}'")
    if place.startswith("cpu"):
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(
            f"there is no CUDA device that PyTorch can use for device='{place}'; leave device out to use the CPU"
        )
    return place


def reject_masked(name: str, given: Any) -> Any:
    """Return the argument, or raise a ValueError for a masked array: NumPy would use the masked numbers."""
    if np.ma.isMaskedArray(given):
        raise ValueError(
            f"{name} must not be a masked array, got one of shape {given.shape}; leave out the keys that it hides"
        )
    return given


def convert_array(given: Any) -> NDArray[Any]:
    """Convert an array or a tensor to a NumPy array."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = given.float() if given.is_floating_point() and given.itemsize < 4 else given  # NumPy has no bfloat16
    return np.asarray(reject_masked("input", given))


def convert_dtype(array: NDArray[Any]) -> NDArray[Any]:
    """Convert floating-point arrays to float32 or float64, the dtypes of the kernels; others are unchanged."""
    if not np.issubdtype(array.dtype, np.floating):
        return array
    single = array.dtype.itemsize < np.dtype(np.float64).itemsize
    return array.astype(np.float32 if single else np.float64, copy=False)


def read_heads(weights: Any, values: Any, *, least_keys: int = 2) -> tuple[NDArray[Any], NDArray[Any]]:
    """Weights and value states, arrays or tensors, as NumPy arrays; a ValueError as of ``check_heads``."""
    alpha, states = convert_array(reject_masked("weights", weights)), convert_array(reject_masked("values", values))
    check_heads(alpha, states, least_keys=least_keys)
    return alpha, states


def check_heads(weights: NDArray[Any], values: NDArray[Any], *, least_keys: int = 2) -> None:
    """Raise a ValueError if the arrays have invalid dtypes, shapes or numbers."""
    for name, array in (("weights", weights), ("values", values)):
        if not np.issubdtype(array.dtype, np.floating):
            wanted = "(…, n)" if name == "weights" else "(…, n, d)"
            raise ValueError(f"{name} must be floating-point numbers {wanted}, got {array.dtype} {array.shape}")
    shape, states = weights.shape, values.shape
    if len(shape) < 1 or shape[-1] < least_keys:
        raise ValueError(f"weights must have the shape (…, n) with n ≥ {least_keys} keys, got {shape}")
    if len(states) < 2 or states[-2] != shape[-1] or states[-1] < 1:
        raise ValueError(f"values must have the shape (…, {shape[-1]}, d) to match weights {shape}, got {states}")
    try:
        np.broadcast_shapes(shape[:-1], states[:-2])
    except ValueError:
        raise ValueError(
            f"values must have leading axes that broadcast against those of weights {shape}, got {states}"
        ) from None
    if 0 not in shape + states:
        _check_numbers(weights, values)


def _check_numbers(weights: NDArray[Any], values: NDArray[Any]) -> None:
    """Raise a ValueError if weights are not rows of a softmax or values are not finite; neither may be empty."""
    sums = weights.sum(-1, dtype=np.float64)
    finite = (values.min() > -np.inf) & (values.max() < np.inf)  # false for NaN
    rows = (weights.min() >= 0) & (sums.min() > LEAST_ROW_SUM) & (sums.max() <= 1 + ROW_SUM_SLACK)
    if finite and rows:
        return
    if not finite:
        raise ValueError(
            f"values of shape {values.shape} must be finite; the forward pass overflowed, use bfloat16 or float32"
        )
    raise ValueError(
        f"weights of shape {weights.shape} must be rows (…, n) of a softmax: not negative, no NaN, "
        "each sum about 1, or less with a learned sink, but not 0"
    )


def iterate_heads(
    weights: NDArray[Any], values: NDArray[Any]
) -> Iterator[tuple[tuple[int, ...], NDArray[Any], NDArray[Any]]]:
    """Iterate over heads: index along the leading axes, weights (n,) and values (n, d)."""
    lead = broadcast_lead(weights, values)
    weights = np.broadcast_to(weights, (*lead, weights.shape[-1]))
    values = np.broadcast_to(values, (*lead, *values.shape[-2:]))
    for head in np.ndindex(lead):
        yield head, convert_dtype(weights[head]), convert_dtype(values[head])


def iterate_groups(
    weights: NDArray[Any], values: NDArray[Any]
) -> Iterator[tuple[NDArray[np.intp], NDArray[Any], NDArray[Any]]]:
    """Iterate over at most ``GROUP`` heads that share value states: their numbers, weights (head, n), values (n, d).

    Heads are numbered in the order of the leading axes.
    """
    lead, own = broadcast_lead(weights, values), values.shape[:-2]
    weights = np.broadcast_to(weights, (*lead, weights.shape[-1]))
    sharing = np.broadcast_to(np.arange(math.prod(own)).reshape(own), lead).ravel()
    for number, place in enumerate(np.ndindex(own)):
        heads = np.flatnonzero(sharing == number)
        for first in range(0, len(heads), GROUP):
            some = heads[first : first + GROUP]
            rows = weights[np.unravel_index(some, lead)] if lead else weights[None]
            yield some, convert_dtype(rows), convert_dtype(values[place])


def broadcast_lead(weights: Any, values: Any) -> tuple[int, ...]:
    """The leading axes of arrays or tensors (…, n) and (…, n, d)."""
    return np.broadcast_shapes(tuple(weights.shape[:-1]), tuple(values.shape[:-2]))
