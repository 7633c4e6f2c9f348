"""The selection of a head at other temperatures: separation, and distance from the rest.

Holds ``selection_by_temperature``. The weights at a temperature are computed in ``geometry.limits.temperature``, and
their sensitivity to their logits in ``geometry.limits.jacobian``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64, I64, Floats
from geometry.grids import choose_grid
from geometry.inputs import broadcast_lead, check_heads, convert_array, iterate_groups
from geometry.limits.distances import random_subset_distance
from geometry.limits.temperature import TEMPERATURES, temper
from geometry.separation import chance
from geometry.separation.comparisons import arrange_keys, compare, compute_measures, select

MEASURES = ("precision", "recall", "specificity", "auc")
"""The measures of ``geometry.separation.chance`` that are computed at every temperature."""

COLUMNS = [chance.MEASURES.index(name) for name in MEASURES]
"""Where they are among those."""


@dataclass(frozen=True)
class SelectionByTemperature:
    """A selection at several temperatures; arrays are float64 with leading axes as given."""

    temperature: F64
    """T, (temperature,)."""
    n: I64
    """N, (grid,)."""
    measures: F64
    """``MEASURES``, (…, temperature, measure, grid): P(r_max, N), R(r_min, N), 1 − K_out/(n − N), AUC(N)."""
    distance: F64
    """d̃(N), the distance of s_N from the sum of the y left out, (…, temperature, grid), in the unit of the values."""
    random_distance: F64
    """The root mean square of the same for random N-subsets, (…, temperature, grid)."""


def selection_by_temperature(
    weights: ArrayLike,
    values: ArrayLike,
    temperatures: Sequence[float] = TEMPERATURES,
    n: Sequence[int] | I64 | None = None,
    *,
    learned_sink: ArrayLike | None = None,
) -> SelectionByTemperature:
    """Separation of a selection and its distance from the rest, by temperature.

    Parameters
    ----------
    weights
        Attention weights at temperature 1 over the keys of one query, in order of position, (…, n), n ≥ 1.
    values
        Value states of the same keys, (…, n, d). Leading axes broadcast against those of ``weights``.
    temperatures
        Each T > 0.
    n
        N, ascending whole numbers from 1 to n − 1, (grid,); by default ``log_grid`` of the number of keys. Ignored
        for n = 1: one key leaves nothing to select, so there is no N.
    learned_sink
        Weight of a learned sink in every row, (…); its logit is divided by T as well.

    Returns
    -------
    SelectionByTemperature
        Counts are exact, as those of ``geometry.separation.chance.separability``, for weights at T rounded to float64.

    Raises
    ------
    ValueError
        For the reasons given in ``geometry.limits.temperature.temper`` and ``geometry.separation.chance.separability``.

    Notes
    -----
    O(grid · n d) per temperature and head, with ``estimate_scratch_bytes`` of memory.

    References
    ----------
    *Limitations of Normalization in Attention Mechanism*, arXiv 2508.17821: temperature; softmax(l / T) by definition.
    """
    alpha, states = convert_array(weights), convert_array(values)
    check_heads(alpha, states, least_keys=1)
    sizes = choose_grid(n, alpha.shape[-1]) if alpha.shape[-1] > 1 else np.empty(0, np.int64)
    lead, shape = broadcast_lead(alpha, states), (len(temperatures), len(MEASURES) + 2, sizes.size)
    tempered = np.stack([temper(alpha, temperature) for temperature in temperatures], axis=-2)
    tempered = np.broadcast_to(tempered, (*lead, *tempered.shape[-2:]))
    selections = np.empty((*lead, *shape))
    rows_of_heads = selections.reshape(math.prod(lead) * shape[0], *shape[1:])
    for rows, weights_of_rows, of_keys in iterate_groups(tempered, states[..., None, :, :]) if sizes.size else ():
        rows_of_heads[rows] = _measure_rows(weights_of_rows, of_keys, sizes)
    measures, distance, random_distance = selections[..., :-2, :], selections[..., -2, :], selections[..., -1, :]
    if learned_sink is not None:  # it takes the same share from every key, which changes only lengths
        shares = [_compute_kept_share(alpha, temperature, learned_sink) for temperature in temperatures]
        kept = np.broadcast_to(np.stack(shares, axis=-1), (*lead, len(shares)))[..., None]
        distance, random_distance = kept * distance, kept * random_distance
    return SelectionByTemperature(np.array(temperatures, np.float64), sizes, measures, distance, random_distance)


def estimate_scratch_bytes(heads: int, n: int, head_dim: int, grid: int, temperatures: int) -> int:
    """Upper bound of the memory of ``selection_by_temperature`` without its inputs, results included, in bytes.

    It includes the weights at every temperature, twice while they are stacked, and the temporaries of one head.

    Parameters
    ----------
    heads
        Query heads.
    n, head_dim
        Keys, and the length of a value state.
    grid, temperatures
        Numbers of N and of T.
    """
    weights = 8 * heads * n * (2 * temperatures + 4)
    results = 8 * heads * temperatures * (len(MEASURES) + 6) * grid
    return weights + results + chance.estimate_scratch_bytes(n, head_dim, grid) + 2**16


def _compute_kept_share(alpha: NDArray[Any], temperature: float, learned_sink: ArrayLike) -> F64:
    """Sum of the weights with a learned sink divided by their sum from ``temper`` without it, (…)."""
    if temperature == 1:
        return np.ones(alpha.shape[:-1])
    kept: F64 = temper(alpha, temperature, learned_sink).sum(axis=-1)
    return kept


def _measure_rows(weights: F64, states: Floats, sizes: I64) -> F64:
    """The measures of rows of weights, their distances from the rest and random ones, (row, measure, grid).

    Of rows that share their value states: weights (row, n), states (n, d).
    """
    n, keys = len(states), arrange_keys(weights, states)
    selected = select(keys, np.append(sizes, n))
    selected, output = selected._replace(s=selected.s[:, :-1]), selected.s[:, -1:]
    measures = compute_measures(compare(keys, sizes, selected), sizes, n)[:, COLUMNS]
    norms = np.linalg.norm(output, axis=-1), np.linalg.norm(keys.a, axis=-1)[:, None]
    distance = np.linalg.norm(output - 2 * selected.s, axis=-1)
    lengths = distance, random_subset_distance(*norms, size=sizes, n_keys=n)
    return np.concatenate([measures, np.ldexp(np.stack(lengths, axis=1), keys.exponent)], axis=1)
