"""How concentrated attention is: over how many keys the weights, and the contributions to the output, are spread.

Holds ``concentration`` for one query of each head. What does not belong here: means over sequences (they are means of
these numbers, never these numbers of averaged weights), Dask (``geometry.lazy``) and files.
"""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from geometry.accelerate import compiled
from geometry.host import _scaled, length
from geometry.kernels import Floats
from geometry.profile import _array, _check, _known, _plain
from geometry.quantities import F64, I32, ROLES, Concentration

SHARES = ((1, 2), (9, 10), (99, 100))
"""Numerators and denominators of the shares that ``n_50``, ``n_90`` and ``n_99`` are about."""


def concentration(weights: ArrayLike, values: ArrayLike, *, sink: bool = True) -> Concentration:
    """Over how many keys the weights of each head, and the norms of its contributions, are spread.

    With p_i = α_i / Σα and q_i = ‖α_i v_i‖ / Σ‖α v‖: the entropies of p and q, and their exponentials, the numbers of
    keys that would have them if all counted equally; the largest p and q, whose they are, and the fewest keys that
    hold 50, 90 and 99 % of Σα and of Σ‖α v‖.

    Parameters
    ----------
    weights
        Attention weights α of one query over the keys it may attend to, in order of position, (…, n), n ≥ 1. What a
        learned sink takes is not part of p. A NumPy array, which must not be a masked one, or a PyTorch tensor.
    values
        Value states v of the same keys, (…, n, d). Leading axes broadcast against those of ``weights``, so query heads
        of one KV group share theirs: weights (kv_head, group, n), values (kv_head, 1, n, d).
    sink
        Whether the first key is position 0 of the sequence.

    Returns
    -------
    Concentration
        float64 and int32 arrays (…). Where all contributions are 0, what is about them is NaN or −1. Ties go to the
        lower position.

    Raises
    ------
    ValueError
        As ``geometry.selection_profile``, but for n = 1.

    Notes
    -----
    The numbers of keys that hold a share are exact for the weights and for the norms as float64 has them; sums of
    different norms that tie in real arithmetic alone, such as √18 and √2 + √2 + √2, may fall either way. Equal α v have
    equal norms. O(n log n + n d) per head; ``concentration_bytes`` is the memory it takes.
    """
    alpha, states = _array(_plain("weights", weights)), _array(_plain("values", values))
    _check(alpha, states, least_keys=1)
    lead, n = np.broadcast_shapes(alpha.shape[:-1], states.shape[:-2]), alpha.shape[-1]
    p = np.broadcast_to(alpha.astype(np.float64), (*lead, n))
    states = np.broadcast_to(states, (*lead, *states.shape[-2:]))
    a = np.zeros((*lead, n))
    for head in np.ndindex(lead):
        contribution_norms(p[head], _scaled(_known(states[head]))[0], a[head])
    keys, contributors = _spread(p, sink=sink), _spread(a, sink=sink)
    return Concentration(
        entropy_keys=keys.entropy,
        effective_keys=np.exp(keys.entropy),
        top_weight=keys.top,
        top_key=keys.index,
        top_role=keys.role,
        n_50=keys.sizes[0],
        n_90=keys.sizes[1],
        n_99=keys.sizes[2],
        largest_deviation=keys.deviation,
        entropy_contributors=contributors.entropy,
        effective_contributors=np.exp(contributors.entropy),
        top_contribution=contributors.top,
        top_contributor=contributors.index,
        top_contributor_role=contributors.role,
        contributors_50=contributors.sizes[0],
        contributors_90=contributors.sizes[1],
        contributors_99=contributors.sizes[2],
    )


def concentration_bytes(heads: int, n: int) -> int:
    """Upper bound of the memory ``concentration`` takes beside its inputs, in bytes.

    Eight float64 numbers per weight, and one head's weights as whole numbers of up to 1100 bits.
    """
    return 8 * 8 * heads * n + 512 * n + 2**16


@compiled
def contribution_norms(alpha: F64, states: Floats, a: F64) -> None:
    """‖α v‖ of every key; alpha (n,), states (n, d), output a (n,).

    The products are taken before the norm, so that equal α v have equal norms, whatever α and v.
    """
    y = np.empty(states.shape[1])
    for key in range(a.size):
        for k in range(y.size):
            y[k] = alpha[key] * np.float64(states[key, k])
        a[key] = length(y)


@dataclass(frozen=True)
class _Spread:
    """How one kind of mass is spread over the keys; arrays (…), NaN or −1 where there is none."""

    entropy: F64
    top: F64
    index: I32
    role: I32
    sizes: I32
    """Fewest keys with each of ``SHARES``, (share, …)."""
    deviation: F64
    """Largest difference of a key's share from 1/n."""


def _spread(mass: F64, *, sink: bool) -> _Spread:
    """How mass (…, n), finite and not negative, is spread over the keys."""
    *lead, n = mass.shape
    mass = mass.reshape(-1, n)
    ordered = -np.sort(-mass, axis=-1)
    sums = ordered.cumsum(axis=-1)
    there = sums[:, -1] > 0
    share = ordered / np.where(there, sums[:, -1], np.nan)[:, None]
    index = mass.argmax(axis=-1)
    role = np.where(index == n - 1, ROLES.index("last"), ROLES.index("other"))
    role = np.where(sink & (index == 0) & (n > 1), ROLES.index("sink"), role)
    sizes = np.stack([_fewest(ordered, sums, *part) for part in SHARES])
    return _Spread(
        entropy=special.entr(share).sum(axis=-1).reshape(lead),
        top=share[:, 0].reshape(lead),
        index=np.where(there, index, -1).astype(np.int32).reshape(lead),
        role=np.where(there, role, -1).astype(np.int32).reshape(lead),
        sizes=np.where(there, sizes, -1).astype(np.int32).reshape(len(SHARES), *lead),
        deviation=np.maximum(share[:, 0] - 1 / n, 1 / n - share[:, -1]).reshape(lead),
    )


def _fewest(ordered: F64, sums: F64, numerator: int, denominator: int) -> NDArray[np.int64]:
    """The fewest keys whose mass is a share of the whole, exactly: (head,); mass in falling order (head, n), its sums.

    Comparisons that the rounding of the sums leaves open are made again in whole numbers.
    """
    n = ordered.shape[-1]
    wanted, held = numerator * sums[:, -1:], denominator * sums
    rounding = denominator * n * 2.0**-51 * sums[:, -1:]
    least = 1 + (held < wanted - rounding).sum(axis=-1)
    most = 1 + (held < wanted + rounding).sum(axis=-1)
    for head in np.flatnonzero(least != most):
        whole = _whole_sums(ordered[head].tolist())
        least[head] = 1 + bisect_left(whole, -(-numerator * whole[-1] // denominator))
    return np.asarray(least)


def _whole_sums(numbers: list[float]) -> list[int]:
    """The running sums of float64 numbers, exactly, in units of the last bit of any of them."""
    ratios = [number.as_integer_ratio() for number in numbers]
    unit = max(denominator for _, denominator in ratios)  # all are powers of two
    return list(accumulate(numerator * (unit // denominator) for numerator, denominator in ratios))
