"""The asset ``warehouse``: all results of a study, as rows of the tables of its database."""

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import sql
from dagster_project.steps.assets import (
    MISSING,
    UNREADABLE,
    Asset,
    Check,
    Checked,
    Extent,
    Made,
    MadeOf,
    Markdown,
    Snapshot,
    Work,
    list_summary_paths,
)
from dagster_project.steps.measuring import SELECTION_METRICS
from dagster_project.steps.sources import open_sources
from dagster_project.steps.summaries import SUMMARIES
from dagster_project.steps.summaries.curves import compute_spreads
from dagster_project.steps.tables import check_tables
from dagster_project.study.home import Home
from dagster_project.study.studies import Study
from dagster_project.study.twins import find_twin_name
from extract.settings import SYNTHETIC
from geometry.grids import log_grid
from storage.errors import UserError
from storage.files.locks import hold_lock
from storage.files.places import Local
from storage.files.staging import remove_leftovers
from storage.files.tables import read_table, read_table_libraries, read_table_provenance, write_tables
from storage.warehouse import rows
from storage.warehouse.connection import locate_database, refuse_newer_database
from storage.warehouse.landing import land
from storage.warehouse.relations import read_paper_claims
from storage.warehouse.rows import build_distance_rows, build_position_rows, build_provenance
from storage.warehouse.versions import compute_landing_version
from storage.zarr.layers import count_keys, list_attending_layers, read_query_positions

if TYPE_CHECKING:
    import pyarrow as pa

    from dagster_project.steps.sources import Sources
    from storage.warehouse.landing import Landing
    from storage.zarr.sequences import SequenceStore

logger = logging.getLogger(__name__)

DROPPED = ("attention", "values")
"""The arrays of a tensor store that are dropped on request; all others are small."""

SELECTION_BYTES, KAPPA_BYTES = 100, 8
"""Bytes in the tables for every selection (a sequence, query, layer, head and N), and in addition for each of its κ."""

MEAN_BYTES, MEAN_KAPPA_BYTES = 430, 60
"""The same for every query, layer, head and N: the tables of means, bounds and diagnostics over all sequences."""

EXTERNAL = "external_scores"
"""The table of scores of heads that other tools computed."""

TEMPERATURE_BYTES, SENSITIVITY_BYTES = 160, 20
"""Bytes for every temperature of a query and head: for each N of the log grid, and for each sequence."""

NULL_BYTES = 1500
"""The same for every N of the log grid of a query and head that is compared with nulls: six measures, two nulls."""

EMPTY_TABLES = 15 * 10**6
"""Bytes of a database of almost empty tables. The tests compare these seven constants with real databases."""


def make_warehouse(work: Work) -> Made:
    """Land all tables of a study, published together, or keep the previous ones if a check finds a violation."""
    landed = land_study(work)
    table = "\n".join(
        ["| table | rows |", "|---|---:|", *(f"| {key} | {rows:,} |" for key, rows in landed.rows.items())]
    )
    return Made(
        {
            "path": landed.path,
            "dagster/row_count": landed.rows["selection_counts"],
            "tables": Markdown(table),
            "bytes": landed.bytes,
            "seconds": landed.seconds,
        },
        tuple(Checked(check, not rows, {"first violations": repr(rows)}) for check, rows in landed.violations.items()),
    )


def land_study(work: Work) -> "Landing":
    """Land a study's rows in the warehouse; they are published if no check finds a violation.

    Then weights and value states are dropped, if the study does not keep them.

    Raises
    ------
    UserError
        If stores or tables are missing, or made from other settings, metrics or tensors; if the disk is full.
    """
    home, name, study = work.home, work.name, work.study
    with hold_lock(home.lock(name), f"study '{name}'", wait=0):
        if not work.force:
            refuse_newer_database(home.warehouse, name)
        landing = land(home.warehouse, name, *gather_tables(work))
    total = f"{sum(landing.rows.values()):,}"
    logger.info("%s: %s rows landed, %.1f MB, %.1f s", name, total, landing.bytes / 1e6, landing.seconds)
    if landing.published and not study.keep_tensors:
        logger.info("%s: %.1f MB of tensors dropped", name, drop_tensors(home, name, study) / 1e6)
    return landing


def gather_tables(work: Work) -> tuple[dict[str, Any], dict[str, int]]:
    """Gather the rows of each table of a study, as streams that can be read once, and the numbers of rows expected.

    Raises
    ------
    UserError
        If stores or tables are missing, or made from other settings, metrics or tensors.
    """
    home, name, study = work.home, work.name, work.study
    sources = open_sources(home, name, study)
    check_tables(Snapshot(home, name, study), SUMMARIES)
    paths = list_summary_paths(home, name, (table for asset in SUMMARIES for table in asset.tables))
    tables = {table: read_table(path) for table, path in paths.items()}
    tables |= _stream_tables(sources, read_summary_provenance(home, name))
    tables["external_scores"] = _make_batches(read_external_scores(home, name))
    analysis = study.analysis
    expected = count_expected_rows(
        sources.tensors,
        kappas=len(analysis.kappas),
        temperatures=len(analysis.temperatures),
        nulls=analysis.nulls.draws > 0,
    )
    return tables, expected


def read_external_scores(home: Home, name: str) -> list[dict[str, Any]]:
    """The rows of ``external_scores`` that were added to a study; empty if there are none.

    Raises
    ------
    UserError
        If their file is damaged.
    """
    path = _build_external_path(home, name)
    return [row for part in read_table(path) for row in part.to_pylist()] if path.exists() else []


def keep_external_scores(home: Home, name: str, rows: list[dict[str, Any]]) -> None:
    """Store the rows of ``external_scores`` of a study, which the caller has claimed, for its next landings."""
    remove_leftovers(_build_external_path(home, name))
    batches = ((EXTERNAL, batch) for batch in _make_batches(rows))
    write_tables({EXTERNAL: _build_external_path(home, name)}, batches, {"step": EXTERNAL}, {})


def _make_batches(rows: list[dict[str, Any]]) -> "Iterator[pa.RecordBatch]":
    """Rows as one batch; none if there are no rows."""
    import pyarrow as pa

    yield from [pa.RecordBatch.from_pylist(rows)] if rows else []


def _build_external_path(home: Home, name: str) -> Path:
    """Path of the file of the scores that were added to a study."""
    return home.summaries(name) / f"{EXTERNAL}.parquet"


def drop_tensors(home: Home, name: str, study: Study) -> int:
    """Delete weights and value states of a study whose metrics and tables have landed; return the bytes freed.

    The small arrays remain, such as tokens, positions and the ledger, and the provenance of the tensors.

    Raises
    ------
    UserError
        If another process works on the study, or the results computed from them have not landed.
    """
    with home.claim(name):
        home.refuse_links(name)
        sources = open_sources(home, name, study)
        if WAREHOUSE.explain_staleness(Snapshot(home, name, study)):
            msg = (
                f"The tensors of study '{name}' have not landed, so dropping them would lose them; "
                f"run: attention-geometry run {name}"
            )
            raise UserError(msg)
        before = sources.tensors.measure_size()
        sources.tensors.drop(DROPPED)
        sources.tensors.path.remove_leftovers()
        return before - sources.tensors.measure_size()


def read_summary_provenance(home: Home, name: str) -> dict[str, Any]:
    """For every asset of ``SUMMARIES`` its versions and settings, and the libraries that computed it, as JSON.

    None for an asset whose tables cannot be read.
    """
    known: dict[str, Any] = {}
    for asset in SUMMARIES:
        path = next(iter(list_summary_paths(home, name, asset.tables).values()))
        made = read_table_provenance(path)
        known[asset.name] = made and {
            **{part: made[part] for part in ("versions", "settings") if part in made},
            "libraries": read_table_libraries(path),
        }
    return known


def _stream_tables(sources: "Sources", summaries: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of the tables that come from the stores, as streams; ``summaries`` is the provenance of later steps."""
    from extract.models import decode_tokens

    tensors, metrics, study, queries = sources.tensors, sources.metrics, sources.study, sources.queries
    tokens = tensors.read("tokens", slice(None))
    return {
        "studies": rows.build_study_rows(tensors, metrics, summaries, find_twin_name(sources.name, study)),
        "heads": rows.build_head_rows(tensors.layers),
        "tokens": rows.build_token_rows(tokens, decode_tokens(study.model, np.unique(tokens).tolist())),
        "selection_counts": rows.build_selection_rows(metrics, queries),
        "upper_bounds": rows.build_upper_bound_rows(metrics, queries),
        "attention_rows": rows.build_attention_rows(metrics, queries),
        "concentration": rows.build_concentration_rows(metrics, queries),
        "value_scales": rows.build_value_scale_rows(metrics, queries),
        "sink_similarity": rows.build_sink_similarity_rows(metrics),
        "planted_assumptions": _list_planted_rows(study),
        **_stream_position_tables(metrics),
    }


def _list_planted_rows(study: Study) -> Iterator["pa.RecordBatch"]:
    """The rows of ``planted_assumptions``: the parameters of a synthetic study; none for any other study."""
    from dataclasses import asdict

    import pyarrow as pa

    from extract.synthetic import plant_heads

    if study.model.id != SYNTHETIC:
        return
    rows = []
    for head in plant_heads(study.select_extraction()):
        drawn = asdict(head.assumed) | {"p_base": head.assumed.p_base(head.query + 1)}
        place = {"query": head.query, "layer": head.layer, "head": head.head, "kv_head": head.kv_head}
        rows.append(place | {"c": drawn.pop("value_scale")} | drawn)
    yield pa.RecordBatch.from_pylist(rows)


def _stream_position_tables(metrics: "SequenceStore") -> dict[str, Any]:
    """The rows of the tables by position or distance, as streams; one layer of one sequence is in memory at a time."""
    sequences, everything = metrics.sizes["sequence"], np.zeros(metrics.sizes["layer"], np.int32)
    norms, cosines = (compute_spreads(metrics, name) for name in ("value_norm", "mean_cosine"))
    return {
        "value_norm_by_position": build_position_rows(
            norms, sequences=sequences, head="kv_head", quantity="norm", first=everything, constant={}
        ),
        "cosine_by_distance": build_distance_rows(cosines, sequences=sequences),
    }


def count_expected_rows(tensors: "SequenceStore", *, kappas: int, nulls: bool, temperatures: int = 5) -> dict[str, int]:
    """Number of rows that each table must have, from the sizes of the tensors and the analysis settings alone."""
    from geometry.separation.comparisons import MEASURES
    from geometry.separation.nulls import NULLS

    sizes, queries, layers = tensors.sizes, np.asarray(read_query_positions(tensors)), list_attending_layers(tensors)
    keys = count_keys(tensors)
    by_layer = np.array([tensors.layers[layer].heads for layer in layers])
    heads, kv_heads = int(by_layer.sum()), sum(tensors.layers[layer].kv_heads for layer in layers)
    selections, positions = int(((keys - 1) * by_layer).sum()), int((keys.min(axis=0) * by_layer).sum())
    rows = sizes["sequence"] * queries.size
    grid = log_grid(max(int(keys.max()), 2))
    below = np.searchsorted(grid, keys.max(axis=0)) * (len(MEASURES) * len(NULLS) if nulls else 0)  # (query, layer)
    return {
        "studies": 1,
        "heads": heads,
        "tokens": sizes["sequence"] * sizes["key"],
        "selection_counts": selections,
        "upper_bounds": selections * kappas,
        "attention_rows": rows * heads,
        "concentration": rows * heads,
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
        "separability": int((below * by_layer).sum()),
        "separability_model": int(below.max(axis=1).sum()),
        "attention_by_position": positions,
        "contributions": positions,
        "principal_directions": kv_heads,
        "sink_effect": int((keys.max(axis=(0, 2)) - 1).sum()),
        "claim_estimates": len(read_paper_claims()),
        "distance_means": int(((keys.max(axis=0) - 1) * by_layer).sum()),
        "convergence": queries.size * heads,
        "convergence_model": queries.size,
        "convergence_fits": 3 * heads,
        "convergence_fits_model": 3,
        "temperature_concentration": queries.size * heads * temperatures,
        "sensitivity": rows * heads * temperatures,
        "logit_range": rows * heads,
    }


def _read_recorded(snapshot: Snapshot) -> MadeOf | str:

    if not locate_database(snapshot.home.warehouse, snapshot.name).exists():
        return MISSING
    refuse_newer_database(snapshot.home.warehouse, snapshot.name)
    return UNREADABLE if snapshot.landed is None else _parse_provenance(snapshot.landed)


def _build_expected(snapshot: Snapshot) -> MadeOf | None:

    if snapshot.tensors is None or snapshot.metrics is None:
        return None
    known = read_summary_provenance(snapshot.home, snapshot.name)
    twin = find_twin_name(snapshot.name, snapshot.study)
    return _parse_provenance(json.loads(json.dumps(build_provenance(snapshot.tensors, snapshot.metrics, known, twin))))


def _parse_provenance(provenance: Mapping[str, Any]) -> MadeOf:
    rest = {part: value for part, value in provenance.items() if part != "landing"}
    return MadeOf(provenance.get("landing"), inputs={"stores or tables": rest})


def _compute_version() -> str:

    return compute_landing_version()


def _list_checks() -> tuple[Check, ...]:

    row_count = Check("row_count", "Each table has as many rows as the sizes of the tensors imply.")
    return (*(Check(name, sql.read_statement("checks", name).meaning) for name in sql.list_names("checks")), row_count)


def _list_places(home: Home, name: str) -> tuple[Local, ...]:

    return (Local(locate_database(home.warehouse, name)),)


def _estimate_bytes(extent: Extent) -> int:
    """Bytes of the database, which is built next to the one that it replaces."""
    study, sizes = extent.study, extent.sizes
    kappas = len(study.analysis.kappas)
    selections = sizes["layer"] * sizes["head"] * sum(study.query_positions)
    by_sequence = study.sequences * (SELECTION_BYTES + KAPPA_BYTES * kappas)
    tempered = sizes["layer"] * sizes["head"] * len(study.analysis.temperatures)
    by_temperature = sum(
        TEMPERATURE_BYTES * log_grid(max(2, position + 1)).size + SENSITIVITY_BYTES * study.sequences
        for position in study.query_positions
    )
    of_means = selections * (by_sequence + MEAN_BYTES + MEAN_KAPPA_BYTES * kappas)
    total = EMPTY_TABLES + of_means + tempered * by_temperature
    if study.analysis.nulls.draws:
        grid = log_grid(max(study.query_positions) + 1)
        below = int(np.searchsorted(grid, study.query_positions, side="right").sum())
        total += sizes["layer"] * sizes["head"] * below * NULL_BYTES
    return total


WAREHOUSE = Asset(
    name="warehouse",
    about="All tables of the study, published together, or the previous ones if a check finds a violation.",
    parents=(SELECTION_METRICS, *SUMMARIES),
    kinds=("duckdb", "sql"),
    version=_compute_version,
    make=make_warehouse,
    expected=_build_expected,
    recorded=_read_recorded,
    places=_list_places,
    space=_estimate_bytes,
    checks=_list_checks,
    pool="warehouse",
)
