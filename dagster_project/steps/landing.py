"""Landing: all that is known of a study as rows of the warehouse's tables.

Holds which rows go into which table, and how many there must be. Heavy libraries are imported inside the functions that need them.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dagster_project.steps.pipeline import check_made, drop_tensors, open_sources, summary_paths
from dagster_project.study.home import Home
from dagster_project.study.studies import Study
from storage.files.locks import exclusive

if TYPE_CHECKING:
    import pyarrow as pa

    from dagster_project.steps.summaries.sources import Sources
    from storage.warehouse.landing import Landing
    from storage.zarr.sequences import SequenceStore

logger = logging.getLogger(__name__)


def land_study(home: Home, name: str, study: Study) -> "Landing":
    """Land a study's rows in the warehouse; they are published if no check finds a violation.

    Then weights and value states go, if the study does not keep them.

    Raises
    ------
    UserError
        If stores or tables are missing, or made from other settings, metrics or tensors; if the disk is full.
    """
    from storage.warehouse.landing import land

    with exclusive(home.lock(name), f"study '{name}'", wait=0):
        sources = open_sources(home, name, study)
        tables = _summary_tables(home, sources) | _tables(sources, known_of_steps(home, sources))
        landing = land(home.warehouse, name, tables, expected_rows(sources.tensors, kappas=len(study.analysis.kappas)))
    total = f"{sum(landing.rows.values()):,}"
    logger.info("%s: %s rows landed, %.1f MB, %.1f s", name, total, landing.bytes / 1e6, landing.seconds)
    if landing.published and not study.keep_tensors:
        logger.info("%s: %.1f MB of tensors dropped", name, drop_tensors(home, name, study) / 1e6)
    return landing


def _summary_tables(home: Home, sources: "Sources") -> dict[str, Any]:
    """The rows of the tables of all steps, as streams.

    Raises
    ------
    UserError
        If one is missing, or made from other metrics or settings.
    """
    from dagster_project.steps.summaries import STEPS
    from storage.files.tables import read_summary

    check_made(sources, STEPS)
    paths = [summary_paths(home, sources.name, step) for step in STEPS.values()]
    return {table: read_summary(path) for some in paths for table, path in some.items()}


def known_of_steps(home: Home, sources: "Sources") -> dict[str, Any]:
    """For every step its versions and settings, and the libraries that computed its tables, as JSON."""
    from dagster_project.steps.summaries import STEPS
    from storage.files.tables import made_by

    analysis, metrics = sources.study.analysis, sources.metrics.provenance
    return {
        name: {
            **{part: step.provenance(analysis, metrics)[part] for part in ("versions", "settings")},
            "libraries": made_by(next(iter(summary_paths(home, sources.name, step).values()))),
        }
        for name, step in STEPS.items()
    }


def _tables(sources: "Sources", summaries: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of the tables that come from the stores, as streams; ``summaries`` is what is known of later steps."""
    from extract.models import token_texts
    from storage.warehouse import rows

    tensors, metrics, study, queries = sources.tensors, sources.metrics, sources.study, sources.queries
    tokens = tensors.read("tokens", slice(None))
    return {
        "studies": rows.study_rows(tensors, metrics, summaries),
        "heads": rows.head_rows(tensors.layers),
        "tokens": rows.token_rows(tokens, token_texts(study.model, np.unique(tokens).tolist())),
        "selection_counts": rows.selection_rows(metrics, queries),
        "upper_bounds": rows.upper_bound_rows(metrics, queries),
        "attention_rows": rows.attention_rows(metrics, queries),
        "value_scales": rows.value_scale_rows(metrics, queries),
        "sink_similarity": rows.sink_similarity_rows(metrics),
        "planted_assumptions": _planted_rows(study),
        **_position_tables(metrics),
    }


def _planted_rows(study: Study) -> Iterator["pa.RecordBatch"]:
    """The rows of ``planted_assumptions``: what a synthetic study was drawn from; none of any other study."""
    from dataclasses import asdict

    import pyarrow as pa

    from extract.settings import SYNTHETIC
    from extract.synthetic import planted

    if study.model.id != SYNTHETIC:
        return
    rows = []
    for head in planted(study.extraction()):
        drawn = asdict(head.assumed) | {"p_base": head.assumed.p_base(head.query + 1)}
        place = {"query": head.query, "layer": head.layer, "head": head.head, "kv_head": head.kv_head}
        rows.append(place | {"c": drawn.pop("value_scale")} | drawn)
    yield pa.RecordBatch.from_pylist(rows)


def _position_tables(metrics: "SequenceStore") -> dict[str, Any]:
    """The rows of the tables by position or distance, as streams; in memory is one layer of one sequence."""
    from dagster_project.steps.summaries.curves import spreads
    from storage.warehouse.rows import distance_rows, position_rows

    sequences, everything = metrics.sizes["sequence"], np.zeros(metrics.sizes["layer"], np.int32)
    norms, cosines = (spreads(metrics, name) for name in ("value_norm", "mean_cosine"))
    return {
        "value_norm_by_position": position_rows(
            norms, sequences=sequences, head="kv_head", quantity="norm", first=everything, constant={}
        ),
        "cosine_by_distance": distance_rows(cosines, sequences=sequences),
    }


def expected_rows(tensors: "SequenceStore", *, kappas: int) -> dict[str, int]:
    """How many rows each table must get, from what was extracted and the number of κ alone."""
    from dagster_project.steps.summaries.sources import query_positions
    from storage.zarr.layers import attending

    sizes, queries, layers = tensors.sizes, np.asarray(query_positions(tensors)), attending(tensors)
    keys = queries[:, None] + 1 - tensors.read("first_key", slice(None))[:, :, layers]  # (sequence, query, layer)
    by_layer = np.array([tensors.layers[layer].heads for layer in layers])
    heads, kv_heads = int(by_layer.sum()), sum(tensors.layers[layer].kv_heads for layer in layers)
    selections, positions = int(((keys - 1) * by_layer).sum()), int((keys.min(axis=0) * by_layer).sum())
    rows = sizes["sequence"] * queries.size
    return {
        "studies": 1,
        "heads": heads,
        "tokens": sizes["sequence"] * sizes["key"],
        "selection_counts": selections,
        "upper_bounds": selections * kappas,
        "attention_rows": rows * heads,
        "value_scales": rows * kv_heads,
        "sink_similarity": sizes["sequence"] * kv_heads,
        "value_norm_by_position": kv_heads * sizes["key"],
        "cosine_by_distance": kv_heads * (sizes["key"] - 2),
        "assumption_norms": kv_heads,
        "assumption_similarity": kv_heads,
        "assumption_similarity_model": 1,
        "assumption_weights": queries.size * heads,
        "assumption_weights_model": queries.size,
        "selection_means": int(((keys.max(axis=0) - 1) * by_layer).sum()),
        "selection_means_model": int((keys.max(axis=(0, 2)) - 1).sum()),
        "attention_by_position": positions,
        "contributions": positions,
        "principal_directions": kv_heads,
        "sink_effect": int((keys.max(axis=(0, 2)) - 1).sum()),
    }
