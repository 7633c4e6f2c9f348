"""Concentration of attention: how many keys share the weights, and how many share the contributions to the output.

Holds ``concentration`` for one query of each head. Means over sequences are means of these numbers, never these numbers
computed from averaged weights.
"""

from bisect import bisect_left
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from geometry.accelerate import compile_kernel
from geometry.arrays import F64, Floats
from geometry.inputs import convert_dtype, read_heads
from geometry.quantities import ROLES, Concentration
from geometry.selection.keys import length, scale_states

SHARES = ((1, 2), (9, 10), (99, 100))
"""Numerators and denominators of the shares of ``n_50``, ``n_90`` and ``n_99``."""


def concentration(weights: ArrayLike, values: ArrayLike, *, sink: bool = True) -> Concentration:
    """Entropy, largest share and fewest keys of given shares, of the weights and of the contributions of each head.

    With p_i = α_i / Σα and q_i = ‖α_i v_i‖ / Σ‖α v‖: the entropies of p and q, and their exponentials, the effective
    numbers of keys; the largest p and q and the keys that have them; and the fewest keys that hold 50, 90 and 99 % of
    Σα and of Σ‖α v‖.

    Parameters
    ----------
    weights
        Attention weights α of one query over the keys it may attend to, in order of position, (…, n), n ≥ 1. The
        weight of a learned sink is not part of p. A NumPy array, but not a masked array, or a PyTorch tensor.
    values
        Value states v of the same keys, (…, n, d). Leading axes broadcast against those of ``weights``, so query heads
        of one KV group share theirs: weights (kv_head, group, n), values (kv_head, 1, n, d).
    sink
        Whether the first key is position 0 of the sequence.

    Returns
    -------
    Concentration
        float64 and int32 arrays (…). If all contributions are 0, the numbers about them are NaN or −1. Ties go to
        the lower position.

    Raises
    ------
    ValueError
        For the reasons given in ``geometry.selection_profile``, except that n = 1 is allowed.

    Notes
    -----
    The numbers of keys that hold a share are exact for the weights and for the norms rounded to float64; sums of
    different norms that tie in real arithmetic only, such as √18 and √2 + √2 + √2, may compare either way. Equal α v
    have equal norms. O(n log n + n d) per head, with ``estimate_concentration_bytes`` of memory.
    """
    alpha, states = read_heads(weights, values, least_keys=1)
    lead, n = np.broadcast_shapes(alpha.shape[:-1], states.shape[:-2]), alpha.shape[-1]
    p = np.broadcast_to(alpha.astype(np.float64), (*lead, n))
    states = np.broadcast_to(states, (*lead, *states.shape[-2:]))
    a = np.zeros((*lead, n))
    for head in np.ndindex(lead):
        contribution_norms(p[head], scale_states(convert_dtype(states[head]))[0], a[head])
    (keys, deviation), (contributors, _) = _measure_spread(p, sink=sink), _measure_spread(a, sink=sink)
    return Concentration(*[*keys, deviation, *contributors])


def estimate_concentration_bytes(heads: int, n: int) -> int:
    """Upper bound of the memory of ``concentration`` without its inputs, in bytes.

    Eight float64 numbers per weight, and one head's weights as whole numbers of up to 1100 bits.
    """
    return 8 * 8 * heads * n + 512 * n + 2**16


@compile_kernel
def contribution_norms(alpha: F64, states: Floats, a: F64) -> None:
    """‖α v‖ of every key; alpha (n,), states (n, d), output a (n,).

    Products are computed before the norm, so that equal α v have equal norms for any α and v.
    """
    y = np.empty(states.shape[1])
    for key in range(a.size):
        for k in range(y.size):
            y[k] = alpha[key] * np.float64(states[key, k])
        a[key] = length(y)


def _measure_spread(mass: F64, *, sink: bool) -> tuple[list[NDArray[Any]], F64]:
    """How ``mass`` (…, n), finite and not negative, is spread over the keys; NaN or −1 where all of it is 0.

    Entropy, its exponential, largest share, the key that has it, its role, and the fewest keys with each of ``SHARES``,
    in the order of the fields of ``Concentration``; and the largest difference of a key's share from 1/n. Arrays (…).
    """
    *lead, n = mass.shape
    mass = mass.reshape(-1, n)
    ordered = -np.sort(-mass, axis=-1)
    sums = ordered.cumsum(axis=-1)
    there = sums[:, -1] > 0
    share = ordered / np.where(there, sums[:, -1], np.nan)[:, None]
    index = mass.argmax(axis=-1)
    role = np.where(index == n - 1, ROLES.index("last"), ROLES.index("other"))
    role = np.where(sink & (index == 0) & (n > 1), ROLES.index("sink"), role)
    entropy, sizes = special.entr(share).sum(axis=-1), [_count_fewest_keys(ordered, sums, *part) for part in SHARES]
    whole = [np.where(there, numbers, -1).astype(np.int32) for numbers in (index, role, *sizes)]
    spread = [entropy, np.exp(entropy), share[:, 0].copy(), *whole]
    deviation: F64 = np.maximum(share[:, 0] - 1 / n, 1 / n - share[:, -1]).reshape(lead)
    return [numbers.reshape(lead) for numbers in spread], deviation


def _count_fewest_keys(ordered: F64, sums: F64, numerator: int, denominator: int) -> NDArray[np.int64]:
    """Count the fewest keys whose mass is a share of the total, exactly, (head,).

    ordered: mass in falling order, (head, n); sums: its running sums. Comparisons that the rounding of the sums leaves
    undecided are repeated in integer arithmetic.
    """
    n = ordered.shape[-1]
    wanted, held = numerator * sums[:, -1:], denominator * sums
    rounding = denominator * n * 2.0**-51 * sums[:, -1:]
    least = 1 + (held < wanted - rounding).sum(axis=-1)
    most = 1 + (held < wanted + rounding).sum(axis=-1)
    for head in np.flatnonzero(least != most):
        whole = _sum_exactly(ordered[head].tolist())
        least[head] = 1 + bisect_left(whole, -(-numerator * whole[-1] // denominator))
    return np.asarray(least)


def _sum_exactly(numbers: list[float]) -> list[int]:
    """Exact running sums of float64 numbers, in units of the smallest last bit among them."""
    ratios = [number.as_integer_ratio() for number in numbers]
    unit = max(denominator for _, denominator in ratios)  # all are powers of two
    return list(accumulate(numerator * (unit // denominator) for numerator, denominator in ratios))
