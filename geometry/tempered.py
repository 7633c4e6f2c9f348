"""What the selection of a head is at other temperatures: how well it separates, how far it lies, how spread it is.

Holds ``selection_by_temperature``. What does not belong here: the weights at a temperature (``geometry.temperature``),
how sensitive they are to their logits (``geometry.jacobian``), means over sequences, Dask and files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geometry import chance
from geometry.distances import random_subset_distance, rest_distance
from geometry.effective_keys import concentration, concentration_bytes
from geometry.grids import I64, grid_of
from geometry.kernels import F64
from geometry.parts import output_parts
from geometry.profile import _array, _check
from geometry.temperature import TEMPERATURES, temper

MEASURES = ("precision", "recall", "specificity", "auc")
"""Of the measures of ``geometry.chance``, those that are taken at every temperature."""

SPREADS = ("effective_keys", "n_50", "n_90", "n_99", "top_weight", "largest_deviation", "effective_contributors")
"""Of the numbers of ``geometry.quantities.Concentration``, those that are taken at every temperature."""


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
    """d̃(N), the distance of s_N from the sum of what is left out, (…, temperature, grid), in the unit of the values."""
    random_distance: F64
    """The root mean square of the same for random N-subsets, (…, temperature, grid)."""
    spreads: F64
    """``SPREADS``, (…, temperature, spread); NaN where there is no such number."""
    underflowed: F64
    """How many keys have no weight, (…, temperature): at T = 1 those that the model lost, below 1 more may be 0."""


def selection_by_temperature(
    weights: ArrayLike,
    values: ArrayLike,
    temperatures: Sequence[float] = TEMPERATURES,
    n: Sequence[int] | I64 | None = None,
    *,
    learned_sink: ArrayLike | None = None,
    sink: bool = True,
) -> SelectionByTemperature:
    """How well a selection separates, how far it lies from the rest and how spread the weights are, by temperature.

    Parameters
    ----------
    weights
        Attention weights at temperature 1 over the keys of one query, in order of position, (…, n), n ≥ 1.
    values
        Value states of the same keys, (…, n, d). Leading axes broadcast against those of ``weights``.
    temperatures
        Each T > 0.
    n
        N, ascending whole numbers from 1 to n − 1, (grid,); by default ``log_grid`` of the number of keys. Without
        meaning for one key, which leaves nothing to select: then there is no N.
    learned_sink
        What a learned sink takes of every row, (…); its logit is divided by T as well.
    sink
        Whether the first key is position 0 of the sequence.

    Returns
    -------
    SelectionByTemperature
        Counts are exact, as those of ``geometry.chance.separability``, for weights at T rounded to float64.

    Raises
    ------
    ValueError
        As ``geometry.temperature.temper`` and ``geometry.chance.separability``.

    Notes
    -----
    One temperature after the other, each O(grid · n d) per head; memory as ``scratch_bytes`` says.

    References
    ----------
    *Limitations of Normalization in Attention Mechanism*, arXiv 2508.17821: temperature; softmax(l / T) by definition.
    """
    alpha, states = _array(weights), _array(values)
    _check(alpha, states, least_keys=1)
    sizes = grid_of(n, alpha.shape[-1]) if alpha.shape[-1] > 1 else np.empty(0, np.int64)
    lead = np.broadcast_shapes(alpha.shape[:-1], states.shape[:-2])
    found = [
        _at_temperature(temper(alpha, temperature), states, sizes, lead, sink=sink) for temperature in temperatures
    ]
    measures, distance, random_distance, spreads, underflowed = (
        np.stack(parts, axis=len(lead)) for parts in zip(*found, strict=True)
    )
    if learned_sink is not None:  # it takes the same share of every key, which moves nothing but lengths
        shares = [_kept(alpha, temperature, learned_sink) for temperature in temperatures]
        kept = np.broadcast_to(np.stack(shares, axis=-1), (*lead, len(shares)))[..., None]
        distance, random_distance = kept * distance, kept * random_distance
    return SelectionByTemperature(
        np.array(temperatures, np.float64), sizes, measures, distance, random_distance, spreads, underflowed
    )


def scratch_bytes(heads: int, n: int, head_dim: int, grid: int, temperatures: int) -> int:
    """Upper bound of the memory ``selection_by_temperature`` takes beside its inputs, results included, in bytes.

    Weights at one temperature and what makes them, the numbers of every temperature and once more while they are
    stacked, and the larger of what the parts take.

    Parameters
    ----------
    heads
        Query heads.
    n, head_dim
        Keys, and the length of a value state.
    grid, temperatures
        How many N and how many T there are.
    """
    weights = 5 * 8 * heads * n
    results = 2 * 8 * heads * temperatures * ((len(MEASURES) + 2) * grid + len(SPREADS) + 1)
    distances = 4 * 8 * n * head_dim + 3 * 8 * grid * head_dim
    norms = 8 * heads * n * (1 + head_dim)
    measured = 8 * heads * len(chance.MEASURES) * 3 * grid + chance.scratch_bytes(n, head_dim, grid)
    return weights + results + max(distances, norms, measured, concentration_bytes(heads, n)) + 2**16


def _kept(alpha: NDArray[Any], temperature: float, learned_sink: ArrayLike) -> F64:
    """What a learned sink leaves to the keys, (…), over what their weights from ``temper`` without it sum to."""
    if temperature == 1:
        return np.ones(alpha.shape[:-1])
    kept: F64 = temper(alpha, temperature, learned_sink).sum(axis=-1)
    return kept


def _at_temperature(
    alpha: F64, states: NDArray[Any], sizes: I64, lead: tuple[int, ...], *, sink: bool
) -> tuple[F64, F64, F64, F64, F64]:
    """The numbers of one temperature, whose weights are ``alpha`` (…, n), in the order of the results."""
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
    spread = concentration(alpha, states, sink=sink)
    known = [np.asarray(getattr(spread, name), np.float64) for name in SPREADS]
    lost = np.broadcast_to((alpha == 0).sum(axis=-1), lead).astype(np.float64)
    return measures, distance, random_distance, np.stack(known, axis=-1), lost
