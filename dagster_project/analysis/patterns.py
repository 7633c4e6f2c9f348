"""The step of patterns: what heads look at in every sequence, and how many times chance that is.

Holds the rows of both tables. The numbers of the sequences are measured during extraction.
"""

from typing import Any

import numpy as np

from dagster_project.analysis.sources import Rows, Sources
from geometry.arrays import F64, I64
from geometry.quantities import PATTERNS
from geometry.statistics.intervals import SHARE, Estimate
from geometry.statistics.lifts import compare_with_chance
from geometry.statistics.moments import estimate_mean
from storage.warehouse.rows import build_batch
from storage.zarr.layers import find_present_heads


def compute_head_patterns(sources: Sources) -> Rows:
    """What heads look at in every sequence, and on average with its chance.

    The patterns of all heads and sequences are in memory, 9 numbers each. There are no rows for a model read in two
    passes, a synthetic study and tensors of an earlier version, which have no patterns.
    """
    layer, head = np.nonzero(find_present_heads(sources.tensors, "head"))
    weights = sources.tensors.read("head_patterns", slice(None))[:, layer, head].astype(np.float64)
    chance = sources.tensors.read("pattern_chance", slice(None))[:, layer].astype(np.float64)
    if not np.isnan(weights).all():
        yield "head_patterns", build_batch(_build_sequence_columns(layer, head, weights, chance))
        yield "head_pattern_means", build_batch(_build_mean_columns(layer, head, weights, chance))


def _build_sequence_columns(layer: I64, head: I64, weights: F64, chance: F64) -> dict[str, Any]:
    """Columns of ``head_patterns`` from weights and chance (sequence, head, pattern)."""
    sequence, index = (axis.ravel() for axis in np.indices(weights.shape[:2], dtype=np.int32))
    numbers = {"": weights, "_chance": chance}
    return {
        "sequence": sequence,
        **_build_place(layer[index], head[index]),
        **{f"{name}{end}": part[..., at].ravel() for at, name in enumerate(PATTERNS) for end, part in numbers.items()},
    }


def _build_mean_columns(layer: I64, head: I64, weights: F64, chance: F64) -> dict[str, Any]:
    """Columns of ``head_pattern_means`` from weights and chance (sequence, head, pattern)."""
    index, pattern = (axis.ravel() for axis in np.indices(weights.shape[1:], dtype=np.int32))
    lift = compare_with_chance(weights, chance)
    return {
        **_build_place(layer[index], head[index]),
        "pattern": np.array(PATTERNS)[pattern],
        "sequences": (~np.isnan(weights)).sum(axis=0).ravel().astype(np.int32),
        **_build_estimate("share", estimate_mean(weights, SHARE)),
        "chance": estimate_mean(chance).value.ravel(),
        **_build_estimate("lift", lift.ratio),
        "p": lift.p.ravel(),
        "p_holm": lift.p_holm.ravel(),
    }


def _build_place(layer: I64, head: I64) -> dict[str, Any]:
    return {"layer": layer.astype(np.int16), "head": head.astype(np.int16)}


def _build_estimate(name: str, found: Estimate) -> dict[str, Any]:
    return {name: found.value.ravel(), f"{name}_low": found.low.ravel(), f"{name}_high": found.high.ravel()}
