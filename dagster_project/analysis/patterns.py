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
    layer, head = (axis.astype(np.int16) for axis in np.nonzero(find_present_heads(sources.tensors)))
    texts: dict[str, tuple[F64, F64, F64]] = {}
    for text, arrays in TEXTS.items():
        weights, chance, queries = (sources.tensors.read(name, slice(None)).astype(np.float64) for name in arrays)
        if not np.isnan(weights).all():
            texts[text] = weights[:, layer, head], chance[:, layer], queries[:, layer]
    if not texts:
        return
    weights, chance, queries = (np.concatenate(of_texts, axis=1) for of_texts in zip(*texts.values(), strict=True))
    sequences, heads, patterns = weights.shape
    place: dict[str, NDArray[Any]] = {"text": np.repeat([*texts], len(layer))}
    place |= {name: np.tile(column, len(texts)) for name, column in (("layer", layer), ("head", head))}
    by_sequence = {name: np.tile(column, sequences) for name, column in place.items()}
    by_sequence["sequence"] = np.arange(sequences, dtype=np.int32).repeat(heads)
    for at, name in enumerate(PATTERNS):
        by_sequence |= {name: weights[..., at].ravel(), f"{name}_chance": chance[..., at].ravel()}
    yield "head_patterns", build_batch(by_sequence)
    lift = compare_with_chance(weights, chance)
    means = {
        "sequences": (~np.isnan(weights)).sum(axis=0).astype(np.int32),
        "queries": queries.mean(axis=0),
        **estimate_mean(weights, SHARE).name_ends("share"),
        "chance": estimate_mean(chance).value,
        **lift.ratio.name_ends("lift"),
        "p": lift.p,
        "p_holm": lift.p_holm,
    }
    by_pattern = {name: column.repeat(patterns) for name, column in place.items()}
    by_pattern |= {"pattern": np.tile(PATTERNS, heads)} | {name: column.ravel() for name, column in means.items()}
    yield "head_pattern_means", build_batch(by_pattern)
