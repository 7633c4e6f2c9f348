"""The selection of a head at other temperatures: separation, and distance from the rest.

Holds ``selection_by_temperature``. The weights at a temperature are computed in ``geometry.limits.temperature``, and
their sensitivity to their logits in ``geometry.limits.jacobian``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry.arrays import F64, I64
from geometry.grids import choose_grid
from geometry.inputs import check_heads, convert_array
from geometry.limits.distances import random_subset_distance, rest_distance
from geometry.limits.temperature import TEMPERATURES, temper
from geometry.selection.parts import output_parts
from geometry.separation import chance

MEASURES = ("precision", "recall", "specificity", "auc")
"""The measures of ``geometry.separation.chance`` that are computed at every temperature."""


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
    sink: bool = True,
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
    sink
        Whether the first key is position 0 of the sequence.

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
    Temperatures are computed one by one, each O(grid · n d) per head, with ``estimate_scratch_bytes`` of memory.

    References
    ----------
    *Limitations of Normalization in Attention Mechanism*, arXiv 2508.17821: temperature; softmax(l / T) by definition.
    """
    alpha, states = convert_array(weights), convert_array(values)
    check_heads(alpha, states, least_keys=1)
    sizes = choose_grid(n, alpha.shape[-1]) if alpha.shape[-1] > 1 else np.empty(0, np.int64)
    lead = np.broadcast_shapes(alpha.shape[:-1], states.shape[:-2])
    selections = [
        _measure_at_temperature(temper(alpha, temperature), states, sizes, lead, sink=sink)
        for temperature in temperatures
    ]
    measures, distance, random_distance = (np.stack(parts, axis=len(lead)) for parts in zip(*selections, strict=True))
    if learned_sink is not None:  # it takes the same share from every key, which changes only lengths
        shares = [_compute_kept_share(alpha, temperature, learned_sink) for temperature in temperatures]
        kept = np.broadcast_to(np.stack(shares, axis=-1), (*lead, len(shares)))[..., None]
        distance, random_distance = kept * distance, kept * random_distance
    return SelectionByTemperature(np.array(temperatures, np.float64), sizes, measures, distance, random_distance)


def estimate_scratch_bytes(heads: int, n: int, head_dim: int, grid: int, temperatures: int) -> int:
    """Upper bound of the memory of ``selection_by_temperature`` without its inputs, results included, in bytes.

    It includes the weights at one temperature and their temporaries, the numbers of every temperature, twice while they
    are stacked, and the largest of the memory of the parts.

    Parameters
    ----------
    heads
        Query heads.
    n, head_dim
        Keys, and the length of a value state.
    grid, temperatures
        Numbers of N and of T.
    """
    weights = 5 * 8 * heads * n
    results = 2 * 8 * heads * temperatures * (len(MEASURES) + 2) * grid
    distances = 4 * 8 * n * head_dim + 3 * 8 * grid * head_dim
    norms = 8 * heads * n * (1 + head_dim)
    measured = 8 * heads * len(chance.MEASURES) * 3 * grid + chance.estimate_scratch_bytes(n, head_dim, grid)
    return weights + results + max(distances, norms, measured) + 2**16


def _compute_kept_share(alpha: NDArray[Any], temperature: float, learned_sink: ArrayLike) -> F64:
    """Sum of the weights with a learned sink divided by their sum from ``temper`` without it, (…)."""
    if temperature == 1:
        return np.ones(alpha.shape[:-1])
    kept: F64 = temper(alpha, temperature, learned_sink).sum(axis=-1)
    return kept


def _measure_at_temperature(
    alpha: F64, states: NDArray[Any], sizes: I64, lead: tuple[int, ...], *, sink: bool
) -> tuple[F64, F64, F64]:
    """The results for one temperature with weights ``alpha`` (…, n), in the order of the fields."""
    measures, distance, random_distance = (
        np.empty((*lead, *shape, sizes.size)) for shape in ((len(MEASURES),), (), ())
    )
    if sizes.size:
        observed = chance.separability(alpha, states, sizes, draws=0, seed=0, sink=sink).observed
        measures = observed[..., [chance.MEASURES.index(name) for name in MEASURES], :]
        distance = rest_distance(alpha, states, sizes)
        parts = output_parts(alpha, states, sink=sink)
        norms = (np.broadcast_to(norm, lead)[..., None] for norm in (parts.norm_output, parts.norm_contributions))
        random_distance = random_subset_distance(*norms, size=sizes, n_keys=alpha.shape[-1])
    return measures, distance, random_distance
