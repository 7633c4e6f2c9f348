"""The assets ``warehouse``, all results of a study as rows of its database, and ``claims``, checks of them."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

import sql
from dagster_project.analysis.claims.evidence import load_parts
from dagster_project.analysis.claims.judging import CLAIMS as OF_PAPER
from dagster_project.analysis.claims.judging import compute_claims, find_measure, read_twin
from dagster_project.analysis.metrics import READ, Metrics
from dagster_project.analysis.sources import Sources, open_sources
from dagster_project.assets.asset import (
    MISSING,
    UNREADABLE,
    Asset,
    AssetResult,
    Check,
    CheckResult,
    Extent,
    Markdown,
    Provenance,
    Work,
    digest_code,
    wrap_place,
)
from dagster_project.assets.summaries import SUMMARIES, check_tables
from dagster_project.study.settings import Study, find_twin_name
from extract.settings import SYNTHETIC
from geometry.arrays import I64
from geometry.grids import half_octave_grid, log_grid
from geometry.quantities import TOP_KEYS
from reports.findings.claims import VERDICTS, format_threshold
from storage.errors import UserError
from storage.files.parts import read_inputs, read_part
from storage.files.places import LocalPlace
from storage.files.staging import make_staging_path
from storage.warehouse import rows
from storage.warehouse.connection import connect, locate_database, refuse_newer_database
from storage.warehouse.declared import count_rows, estimate_row_bytes
from storage.warehouse.landing import DECLARED, DerivedTables, Landing, join_parts, land
from storage.warehouse.relations import compute_landing_version
from storage.warehouse.rows import build_provenance
from storage.zarr.arrays import READ_SEQUENCES, LayerSize
from storage.zarr.layers import count_keys, list_sizes

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection


MEASURES, NULLS = 6, 2
"""Measures that are compared with nulls, and the nulls."""


def count_units(keys: I64, layers: Sequence[LayerSize], sizes: Mapping[str, int], study: Study) -> dict[str, int]:
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


logger = logging.getLogger(__name__)

CLAIM_TABLES = (
    "measures", "layer_profiles", "facts", "claims", "claim_parts", "loss_associations", "query_means", "head_plane",
)  # fmt: skip
"""The tables that are computed from all others."""

EMPTY_TABLES = 15 * 10**6
"""Bytes of a database of almost empty tables. The tests compare estimates with real databases."""


def make_warehouse(work: Work) -> AssetResult:
    """Land all tables of a study, published together, or keep the previous ones if a check finds a violation."""
    landed = land_study(work)
    table = "\n".join(
        ["| table | rows |", "|---|---:|", *(f"| {key} | {rows:,} |" for key, rows in landed.rows.items())]
    )
    return AssetResult(
        {
            "path": landed.path,
            "dagster/row_count": landed.rows["selection_counts"],
            "tables": Markdown(table),
            "bytes": landed.bytes,
            "seconds": landed.seconds,
        },
        tuple(
            CheckResult(check, not rows, {"first violations": repr(rows)}) for check, rows in landed.violations.items()
        ),
    )


def land_study(work: Work) -> Landing:
    """Land a study's rows in the warehouse; they are published if no check finds a violation.

    Then weights and value states are dropped, if the study does not keep them. ``UserError`` if stores or tables are
    missing, or made from other settings, metrics or tensors; if the disk is full.
    """
    home, name = work.home, work.name
    with work.lock():
        if not work.force:
            refuse_newer_database(home.warehouse, name)
        landing = land(home.warehouse, name, *gather_tables(work), build_claims(work))
    total = f"{sum(landing.rows.values()):,}"
    logger.info("%s: %s rows landed, %.1f MB, %.1f s", name, total, landing.bytes / 1e6, landing.seconds)
    if landing.published and not work.study.keep_tensors:
        logger.info("%s: %.1f MB of tensors dropped", name, drop_tensors(work) / 1e6)
    return landing


def build_claims(work: Work) -> DerivedTables:
    """Measures and claims, which are computed from the other tables, and compared with those of the study's twin."""
    twin = read_twin(work.home, find_twin_name(work.name, work.study))

    def compute(connection: "DuckDBPyConnection") -> Iterator[tuple[str, "pa.RecordBatch"]]:
        load_parts(connection, read_parts(work))
        yield from compute_claims(connection, twin)

    return DerivedTables(CLAIM_TABLES, compute)


def gather_tables(work: Work) -> tuple[dict[str, Any], dict[str, int]]:
    """Gather the rows of each table of a study, as streams that can be read once, and the numbers of rows expected.

    ``UserError`` if stores or tables are missing, or made from other settings, metrics or tensors.
    """
    sources = open_sources(work.home, work.name, work.study)
    check_tables(work, SUMMARIES)
    parts = read_parts(work) | _stream_tables(sources, read_summary_provenance(work), work.twin)
    units = count_units(
        count_keys(sources.tensors).max(axis=0), list_sizes(sources.tensors), sources.tensors.sizes, work.study
    )
    declared = [sql.read_statement("schema", table) for table in sql.list_names("schema")]
    given = [table for table in declared if table.name not in {*sql.list_names("derived"), *CLAIM_TABLES}]
    counts = {table.name: count_rows(table, units) for table in declared}
    spill = make_staging_path(work.home.warehouse / work.name)  # a landing removes it with its own
    return (
        {table.name: join_parts(table, parts, spill) for table in given},
        {table: count for table, count in counts.items() if count is not None},
    )


def read_parts(work: Work) -> dict[str, Any]:
    """The rows of every part, as streams that can be read once; none of what the study does not ask for."""
    wanted = [asset for asset in SUMMARIES if asset.is_wanted(work.study)]
    paths = {table: path for asset in wanted for table, path in asset.locate_parts(work).items()}
    return {table: iter(()) for asset in SUMMARIES for table in asset.tables} | {
        table: read_part(path) for table, path in paths.items()
    }


def drop_tensors(work: Work) -> int:
    """Delete weights and value states of a study whose metrics and tables have landed; return the bytes freed.

    The small arrays remain, such as tokens, positions and the ledger, and the provenance of the tensors. ``UserError``
    if another process works on the study, or the results computed from them have not landed.
    """
    home, name = work.home, work.name
    with home.claim(name):
        home.refuse_links(name)
        sources = open_sources(home, name, work.study)
        if WAREHOUSE.explain_staleness(replace(work)):
            raise UserError(
                f"The tensors of study '{name}' have not landed, so dropping them would lose them; "
                f"run: attention-geometry run {name}"
            )
        before = sources.tensors.path.measure_size()
        sources.tensors.drop(READ)
        sources.tensors.path.remove_leftovers()
        return before - sources.tensors.path.measure_size()


def read_summary_provenance(work: Work) -> dict[str, Any]:
    """For every asset that computes tables its versions and settings, and the libraries that computed it, as JSON.

    None for an asset whose tables cannot be read, or for which the study does not ask.
    """
    known: dict[str, Any] = {}
    for asset in SUMMARIES:
        paths = asset.locate_parts(work).values() if asset.is_wanted(work.study) else ()
        made = next((read_inputs(path.parent) for path in paths), None)
        known[asset.name] = made and {
            **{part: made["inputs"][part] for part in ("versions", "settings")},
            "libraries": made["libraries"],
        }
    return known | {"claims": compute_claims_version()}


def read_metrics_provenance(metrics: Metrics) -> dict[str, Any]:
    """The version and the settings of what was measured, and the libraries that measured it, as JSON."""
    own = {part: value for part, value in metrics.made_of.items() if part not in {"study", "tensors"}}
    return own | {"versions": metrics.read_libraries()}


@cache
def compute_claims_version() -> str:
    """A digest of the code of measures and claims, and of the statistics and the formatting that they use."""
    words = (files("reports.findings") / name for name in ("claims.py", "numbers.py"))
    return digest_code(files("dagster_project.analysis.claims"), files("geometry.statistics"), *words)


def _stream_tables(sources: Sources, summaries: Mapping[str, Any], twin: Mapping[str, Any] | None) -> dict[str, Any]:
    """The rows of the tables that come from the stores, as streams.

    ``summaries`` is the provenance of later steps, ``twin`` that of the study's twin.
    """
    from extract.models.loading import decode_tokens

    tensors, metrics, study = sources.tensors, sources.metrics, sources.study
    tokens = tensors.read("tokens", slice(None))
    return {
        "studies": rows.build_study_rows(tensors, read_metrics_provenance(metrics), summaries, twin, study.corpus.name),
        "heads": rows.build_head_rows(tensors.layers),
        "tokens": rows.build_token_rows(tokens, decode_tokens(study.model, tokens)),
        **{table: metrics.stream(table) for table in rows.LANDED},
        "query_heads": rows.build_query_head_rows(tensors),
        "context_heads": rows.build_context_rows(tensors),
        "planted_assumptions": _list_planted_rows(study),
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


def _compare(work: Work) -> tuple[Provenance | str, Provenance | None]:
    if not locate_database(work.home.warehouse, work.name).exists():
        return MISSING, None
    refuse_newer_database(work.home.warehouse, work.name)
    if work.landed is None:
        return UNREADABLE, None
    recorded = _parse_provenance(work.landed)
    if work.tensors is None or work.metrics is None:
        return recorded, None
    known, metrics = read_summary_provenance(work), read_metrics_provenance(work.metrics)
    origin = build_provenance(work.tensors, metrics, known, work.twin)
    return recorded, _parse_provenance(json.loads(json.dumps(origin)))


def _parse_provenance(provenance: Mapping[str, Any]) -> Provenance:
    rest = {part: value for part, value in provenance.items() if part not in {"landing", "twin"}}
    return Provenance(
        provenance.get("landing"), inputs={"stores or tables": rest, "tables of its twin": provenance.get("twin")}
    )


def _list_checks() -> tuple[Check, ...]:
    row_count = Check("row_count", "Each table has as many rows as the sizes of the tensors imply.")
    of_tables = (Check(name, meaning) for name, meaning in DECLARED.items())
    checks = (Check(name, sql.read_statement("checks", name).meaning) for name in sql.list_names("checks"))
    return (*checks, *of_tables, row_count)


def _estimate_bytes(extent: Extent) -> int:
    """Bytes of the database, which is built next to the one that it replaces; windows are not known and not counted.

    And of the parts of small tables, which they land from.
    """
    sizes, study = extent.sizes, extent.work.study
    twice = {table for asset in SUMMARIES for table in asset.tables}
    layers = [LayerSize(sizes["head"], sizes["kv_head"], sizes["head_dim"])] * sizes["layer"]
    keys = np.array(study.query_positions)[:, None] + 1 + np.zeros(len(layers), np.int64)
    units = count_units(keys, layers, {**sizes, "sequence": study.sequences}, study)
    declared = (sql.read_statement("schema", table) for table in sql.list_names("schema"))
    return EMPTY_TABLES + sum(
        (count_rows(table, units) or 0) * estimate_row_bytes(table) * (2 if table.name in twice else 1)
        for table in declared
    )


WAREHOUSE = Asset(
    name="warehouse",
    about="All tables of the study, published together, or the previous ones if a check finds a violation.",
    parents=("selection_metrics", *(asset.name for asset in SUMMARIES)),
    kinds=("duckdb", "sql"),
    version=compute_landing_version,
    make=make_warehouse,
    compare=_compare,
    places=wrap_place(lambda home, name: LocalPlace(locate_database(home.warehouse, name))),
    space=_estimate_bytes,
    checks=_list_checks,
    pool="warehouse",
)


SHOWN = ("p_holm", "sequences_needed", "rows", "sequences", "twin_verdict", "beyond_twin")
"""Columns of a claim that its check shows, if they are known."""


def make_claims(work: Work) -> AssetResult:
    """Judge the claims of the paper by a study: only a claim that the study supports passes its check.

    ``UserError`` if it has not landed.
    """
    with closing(connect(work.home.warehouse, studies=[work.name], described=False)) as connection:
        statement = "SELECT * EXCLUDE (study) FROM claims WHERE study = ? ORDER BY source, claim"
        claims = connection.sql(statement, params=[work.name]).to_arrow_table().to_pylist()
    if not claims:
        raise UserError(
            f"The warehouse holds nothing of the study '{work.name}'; run it first: attention-geometry run {work.name}"
        )
    counts = Counter(claim["verdict"] for claim in claims)
    checks = (
        CheckResult(
            claim["claim"],
            claim["verdict"] == "supported",
            {name: claim[name] for name in SHOWN if claim[name] is not None},
            claim["sentence"],
        )
        for claim in claims
    )
    return AssetResult({verdict: counts[verdict] for verdict in VERDICTS}, tuple(checks))


def _list_claims() -> tuple[Check, ...]:
    return tuple(
        Check(claim.name, f"{claim.source}: {claim.statement}. {'; '.join(required)}", blocking=False)
        for claim in OF_PAPER
        for required in (
            [f"{find_measure(part.measure).meaning}: {format_threshold(vars(part))}" for part in claim.parts],
        )
    )


CLAIMS = Asset(
    name="claims",
    about="The claims of the paper, tested on this study: a check passes if the study supports the claim; if not, it "
    "says whether the claim is not supported, undecided or not testable.",
    parents=("warehouse",),
    kinds=("duckdb", "sql"),
    version=lambda: "4",
    make=make_claims,
    compare=lambda _: (Provenance(None), None),  # it stores nothing: it is stale if its parent is
    places=lambda _, __: (),
    checks=_list_claims,
)
