"""Landing: all that is known of a study as rows of the warehouse's tables.

Holds which rows go into which table, and how many there must be. What does not belong here: how rows are made of arrays
(``storage.rows``), how they get into the warehouse whole or not at all (``storage.warehouse``), and tables that are
derived there (``sql/derived``). Heavy libraries are imported inside the functions that need them.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dagster_project.home import Home
from dagster_project.pipeline import check_made, open_sources, summary_paths
from dagster_project.studies import Study
from storage.locks import exclusive

if TYPE_CHECKING:
    import pyarrow as pa

    from dagster_project.summaries.sources import F64, Sources
    from storage.sequences import SequenceStore
    from storage.warehouse import Landing

logger = logging.getLogger(__name__)


def land_study(home: Home, name: str, study: Study) -> "Landing":
    """Land a study's rows in the warehouse; they are published if no check finds a violation.

    Raises
    ------
    UserError
        If stores or tables are missing, or made from other settings, metrics or tensors; if the disk is full.
    """
    from storage.warehouse import land

    with exclusive(home.lock(name), f"study '{name}'", wait=0):
        sources = open_sources(home, name, study)
        tables = _summary_tables(home, sources) | _tables(sources, _known_of_steps(home, sources))
        landing = land(home.warehouse, name, tables, expected_rows(sources.tensors, kappas=len(study.analysis.kappas)))
    total = f"{sum(landing.rows.values()):,}"
    logger.info("%s: %s rows landed, %.1f MB, %.1f s", name, total, landing.bytes / 1e6, landing.seconds)
    return landing


def _summary_tables(home: Home, sources: "Sources") -> dict[str, Any]:
    """The rows of the tables of all steps, as streams.

    Raises
    ------
    UserError
        If one is missing, or made from other metrics or settings.
    """
    from dagster_project.summaries import STEPS
    from storage.summaries import read_summary

    check_made(sources, STEPS)
    paths = [summary_paths(home, sources.name, step) for step in STEPS.values()]
    return {table: read_summary(path) for some in paths for table, path in some.items()}


def _known_of_steps(home: Home, sources: "Sources") -> dict[str, Any]:
    """For every step its versions and settings, and the libraries that computed its tables, as JSON."""
    from dagster_project.summaries import STEPS
    from storage.summaries import made_by

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
    from storage import rows

    tensors, metrics, study, queries = sources.tensors, sources.metrics, sources.study, sources.queries
    tokens = np.asarray(tensors.array("tokens")[:])
    return {
        "studies": rows.study_rows(tensors, metrics, summaries),
        "heads": rows.head_rows(tensors.sizes),
        "tokens": rows.token_rows(tokens, token_texts(study.model, np.unique(tokens).tolist())),
        "selection_counts": rows.selection_rows(metrics, queries),
        "upper_bounds": rows.upper_bound_rows(metrics, queries),
        "attention_rows": rows.attention_rows(metrics, queries),
        "value_scales": rows.value_scale_rows(metrics, queries),
        "sink_similarity": rows.sink_similarity_rows(metrics),
        "planted_assumptions": _planted_rows(study),
        **_position_tables(tensors, metrics, queries),
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


def _position_tables(tensors: "SequenceStore", metrics: "SequenceStore", queries: Sequence[int]) -> dict[str, Any]:
    """The rows of the tables by position or distance, as streams; in memory is one layer of one sequence."""
    from storage.rows import distance_rows, position_rows

    sequences, everything = tensors.sizes["sequence"], np.zeros(tensors.sizes["layer"], np.int32)
    norms, cosines = (_spreads(metrics, name) for name in ("value_norm", "mean_cosine"))
    return {
        "value_norm_by_position": position_rows(
            norms, sequences=sequences, head="kv_head", quantity="norm", first=everything, constant={}
        ),
        "attention_by_position": _weight_rows(tensors, queries),
        "cosine_by_distance": distance_rows(cosines, sequences=sequences),
    }


def _weight_rows(tensors: "SequenceStore", queries: Sequence[int]) -> Iterator["pa.RecordBatch"]:
    """The rows of ``attention_by_position``, one batch per query and layer."""
    from storage.rows import position_rows

    first_key = np.asarray(tensors.array("first_key")[:]).max(axis=0)
    for index, query in enumerate(queries):
        yield from position_rows(
            _spreads(tensors, "attention", index, query + 1),
            sequences=tensors.sizes["sequence"],
            head="head",
            quantity="weight",
            first=first_key[index],
            constant={"query": query},
        )


def _spreads(
    store: "SequenceStore", name: str, query: int | None = None, stop: int | None = None
) -> "Iterator[tuple[F64, F64]]":
    """Mean and deviation over sequences, (head, key) each, layer by layer; ``query`` indexes an array with that axis.

    ``stop`` is how many keys are wanted, if not all.
    """
    from dagster_project.summaries.curves import Spread

    array = store.array(name)
    for layer in range(store.sizes["layer"]):
        spread = Spread()
        for sequence in range(store.sizes["sequence"]):
            at = (sequence, layer) if query is None else (sequence, query, layer)
            spread.add(np.asarray(array[(*at, slice(None), slice(stop))], np.float64))
        yield spread.value(), spread.deviation()


def expected_rows(tensors: "SequenceStore", *, kappas: int) -> dict[str, int]:
    """How many rows each table must get, from what was extracted and the number of κ alone."""
    from dagster_project.summaries.sources import query_positions

    sizes, queries = tensors.sizes, np.asarray(query_positions(tensors))
    keys = queries[:, None] + 1 - np.asarray(tensors.array("first_key")[:])  # (sequence, query, layer)
    selections = int((keys - 1).sum()) * sizes["head"]
    kv_heads, positions = sizes["layer"] * sizes["kv_head"], int(keys.min(axis=0).sum()) * sizes["head"]
    return {
        "studies": 1,
        "heads": sizes["layer"] * sizes["head"],
        "tokens": sizes["sequence"] * sizes["key"],
        "selection_counts": selections,
        "upper_bounds": selections * kappas,
        "attention_rows": keys.size * sizes["head"],
        "value_scales": keys.size * sizes["kv_head"],
        "sink_similarity": sizes["sequence"] * kv_heads,
        "value_norm_by_position": kv_heads * sizes["key"],
        "cosine_by_distance": kv_heads * (sizes["key"] - 2),
        "assumption_norms": kv_heads,
        "assumption_similarity": kv_heads,
        "assumption_similarity_model": 1,
        "assumption_weights": queries.size * sizes["layer"] * sizes["head"],
        "assumption_weights_model": queries.size,
        "selection_means": int((keys.max(axis=0) - 1).sum()) * sizes["head"],
        "selection_means_model": int((keys.max(axis=(0, 2)) - 1).sum()),
        "attention_by_position": positions,
        "contributions": positions,
        "principal_directions": kv_heads,
        "sink_effect": int((keys.max(axis=(0, 2)) - 1).sum()),
    }
