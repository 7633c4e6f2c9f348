"""The numbers of sequences, heads, selections and so on of a study, by which tables declare how many rows they have."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dagster_project.study.settings import Study
from geometry.arrays import I64
from geometry.grids import half_octave_grid, log_grid
from geometry.quantities import TOP_KEYS
from storage.zarr.arrays import READ_SEQUENCES

if TYPE_CHECKING:
    from storage.zarr.arrays import LayerSize

MEASURES, NULLS = 6, 2
"""Measures that are compared with nulls, and the nulls."""


def count_units(keys: I64, layers: "Sequence[LayerSize]", sizes: Mapping[str, int], study: Study) -> dict[str, int]:
    """The units of ``rows`` in ``sql/schema``.

    ``keys``, (query, layer), are the most keys that each query attends to in every layer with attention; ``layers`` the
    sizes of these layers; ``sizes`` those of the axes ``sequence`` and ``key``. A unit is a sum over queries, layers
    and heads where its name has several parts: ``head_n`` is the number of (query, layer, head, n), ``query_n`` that of
    (query, n), with n up to the most keys of any layer.
    """
    heads, kv_heads = (np.array([getattr(size, name) for size in layers], np.int64) for name in ("heads", "kv_heads"))
    most, analysis = keys.max(axis=1), study.analysis
    grid = half_octave_grid(max(int(keys.max()), 2))
    below = np.searchsorted(grid, keys) * (MEASURES * NULLS if analysis.nulls.draws else 0)
    return {
        "sequences": sizes["sequence"],
        "positions": sizes["key"],
        "later_positions": sizes["key"] - 1,
        "measured_sequences": sizes["sequence"] if study.every_query else 0,
        "read_sequences": min(sizes["sequence"], READ_SEQUENCES) if study.every_query else 0,
        "distances": max(0, sizes["key"] - 2),
        "queries": len(keys),
        "heads": int(heads.sum()),
        "kv_heads": int(kv_heads.sum()),
        "all_head_queries": len(keys) * int(heads.sum()),
        "kv_head_queries": len(keys) * int(kv_heads.sum()),
        "head_queries": int(((keys > 1) * heads).sum()),
        "layer_queries": int((keys > 1).sum()),
        "queries_of_two": int((most > 1).sum()),
        "head_n": int(((keys - 1) * heads).sum()),
        "query_n": int((most - 1).sum()),
        "query_grid": sum(log_grid(max(position + 1, 2)).size for position in study.query_positions),
        "head_keys": int((keys * heads).sum()),
        "head_top_keys": int((np.minimum(keys, TOP_KEYS) * heads).sum()),
        "head_nulls": int((below * heads).sum()),
        "null_sequences": min(analysis.nulls.sequences, sizes["sequence"]) if analysis.nulls.draws else 0,
        "query_nulls": int(below.max(axis=1).sum()),
        "kappas": len(analysis.kappas),
        "families": len(analysis.kappas) + 1,
        "temperatures": len(analysis.temperatures),
    }
