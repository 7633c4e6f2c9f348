"""The step of patterns: what heads look at in every sequence, and how many times chance that is.

Holds the rows of both tables. The numbers of the sequences are measured during extraction.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64
from geometry.quantities import PATTERNS
from geometry.statistics.intervals import SHARE, estimate_mean
from geometry.statistics.verdicts import compare_with_chance
from storage.warehouse.rows import build_batch
from storage.zarr.layers import find_present_heads

Place = dict[str, NDArray[Any]]  # Columns of the text, layer and head of a row

TEXTS = {
    "corpus": ("head_patterns", "pattern_chance", "pattern_queries"),
    "probe": ("probe_patterns", "probe_chance", "probe_queries"),
}
"""The arrays of weights, of their chance and of the number of queries, by the text that they were measured in."""


def compute_head_patterns(sources: Sources) -> Rows:
    """What heads look at in every sequence of the study and of its probe, and on average with its chance.

    The patterns of all heads and sequences are in memory, 9 numbers each. There are no rows for a synthetic study,
    which has no patterns.
    """
    layer, head = np.nonzero(find_present_heads(sources.tensors, "head"))
    parts = []
    for text, arrays in TEXTS.items():
        weights, chance, queries = (sources.tensors.read(name, slice(None)).astype(np.float64) for name in arrays)
        if not np.isnan(weights).all():
            numbers = weights[:, layer, head], chance[:, layer], queries[:, layer]
            parts.append((np.full(len(layer), text), layer, head, *numbers))
    if parts:
        texts, layers, heads = (np.concatenate([part[at] for part in parts]) for at in range(3))
        place = {"text": texts, "layer": layers.astype(np.int16), "head": heads.astype(np.int16)}
        weights, chance, queries = (np.concatenate([part[at] for part in parts], axis=1) for at in (3, 4, 5))
        yield "head_patterns", build_batch(_build_sequence_columns(place, weights, chance))
        yield "head_pattern_means", build_batch(_build_mean_columns(place, weights, chance, queries))


def _build_sequence_columns(place: Place, weights: F64, chance: F64) -> dict[str, Any]:
    """Columns of ``head_patterns`` from weights and chance (sequence, head of a text, pattern)."""
    sequence, index = (axis.ravel() for axis in np.indices(weights.shape[:2], dtype=np.int32))
    numbers = {"": weights, "_chance": chance}
    return {
        "sequence": sequence,
        **_repeat(place, index),
        **{f"{name}{end}": part[..., at].ravel() for at, name in enumerate(PATTERNS) for end, part in numbers.items()},
    }


def _build_mean_columns(place: Place, weights: F64, chance: F64, queries: F64) -> dict[str, Any]:
    """Columns of ``head_pattern_means`` from weights, chance and queries (sequence, head of a text, pattern)."""
    index, pattern = (axis.ravel() for axis in np.indices(weights.shape[1:], dtype=np.int32))
    lift = compare_with_chance(weights, chance)
    numbers = {
        "queries": queries.mean(axis=0),
        **estimate_mean(weights, SHARE).name_ends("share"),
        "chance": estimate_mean(chance).value,
        **lift.ratio.name_ends("lift"),
        "p": lift.p,
        "p_holm": lift.p_holm,
    }
    return {
        **_repeat(place, index),
        "pattern": np.array(PATTERNS)[pattern],
        "sequences": (~np.isnan(weights)).sum(axis=0).ravel().astype(np.int32),
        **{name: column.ravel() for name, column in numbers.items()},
    }


def _repeat(place: Place, index: NDArray[np.int32]) -> Place:
    """The columns of a head's place for each row."""
    return {name: column[index] for name, column in place.items()}
