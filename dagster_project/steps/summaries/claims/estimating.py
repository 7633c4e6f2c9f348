"""The estimates of all claims of a study, from one pass over its layers."""

import math
from contextlib import closing
from typing import Any

import duckdb
import pyarrow as pa
from tqdm import tqdm

from dagster_project.steps.sources import Sources
from dagster_project.steps.summaries.claims import chance, fits, kinds, regimes
from dagster_project.steps.summaries.claims.bounds import Bounds
from dagster_project.steps.summaries.claims.effects import Function
from dagster_project.steps.summaries.claims.norms import Norms
from dagster_project.steps.summaries.claims.parts import Estimated, Resampled, Statistics
from dagster_project.steps.summaries.claims.reading import build_grid, count_layer_groups, find_head_groups, read_layers
from dagster_project.steps.summaries.claims.separation import Separation
from dagster_project.steps.summaries.claims.sink import Sink
from geometry.statistics.resampling import resample
from geometry.threads import one_blas_thread
from storage.warehouse.relations import create_relations, create_tables, read_paper_claims
from storage.zarr.layers import list_attending_layers

SCHEMA = pa.schema(
    [
        ("claim", pa.string()),
        *((name, pa.float64()) for name in ("value", "low", "high")),
        *((name, pa.int32()) for name in ("rows", "clusters", "sequences")),
        ("premise_value", pa.float64()),
        ("reason", pa.string()),
    ]
)
"""The columns of ``claim_estimates``."""


def compute_claim_rows(sources: Sources) -> pa.RecordBatch:
    """The rows of ``claim_estimates`` of a study."""
    claims = {claim["claim"]: claim for claim in read_paper_claims()}
    with one_blas_thread:
        found = estimate_all(sources, {name: claim["least_rows"] for name, claim in claims.items()})
    sequences = sources.metrics.sizes["sequence"]
    rows = [build_claim_row(claim, found[name], sequences) for name, claim in claims.items()]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def estimate_all(sources: Sources, least: dict[str, int]) -> dict[str, Estimated]:
    """The estimate of every claim, by name; ``least`` is the number of rows that each needs."""
    n, clusters = build_grid(sources), sum(count_layer_groups(sources))
    statistics = Statistics(resample(sources.metrics.sizes["sequence"], max(1, clusters)), len(least))
    separation, sink, norms = Separation(n, statistics), Sink(n, statistics), Norms(statistics)
    bounds = Bounds(n, statistics, sources.study.analysis.kappas, least=least)
    function = Function(statistics)
    for layer in tqdm(
        read_layers(sources, n), "claims", len(list_attending_layers(sources.metrics)), unit="layer", disable=None
    ):
        resampled = Resampled(layer, statistics.resampling)
        for subject in (separation, sink, norms, bounds, function):
            subject.add(resampled)
    groups = find_head_groups(sources)
    with closing(_open_rules()) as connection:
        of_kinds = kinds.find_kinds(sources, connection, statistics)
        found = separation.estimate_claims(connection)
    return {
        **norms.estimate_claims(),
        **fits.estimate_similarity_claims(fits.fit_similarity(sources.metrics), statistics),
        **fits.estimate_weight_claims(fits.fit_weights(sources.tensors), statistics),
        **bounds.estimate_claims(),
        **found,
        **sink.estimate_claims(),
        **kinds.estimate_kind_claims(of_kinds),
        **regimes.estimate_regime_claims(
            sources.read_query_table("regimes_by_sequence", sources.query), groups, statistics
        ),
        **function.estimate_claims(
            sources.read_rows("head_ablation"), sources.read_rows("sparsified_loss_by_sequence")
        ),
        **chance.estimate_chance_claims(sources.read_query_table("separability", sources.query), groups, statistics),
    }


def _open_rules() -> duckdb.DuckDBPyConnection:
    """An empty database with the macros of ``sql``, in which rules that are stated in SQL are evaluated."""
    connection = duckdb.connect()
    create_tables(connection)
    create_relations(connection)
    return connection


def build_claim_row(claim: dict[str, Any], found: Estimated, sequences: int) -> dict[str, Any]:
    """The row of ``claim_estimates`` of a row of ``paper_claims``, with the reason why it cannot be tested, if any."""
    interval = found.interval
    low, high = min(interval.low, interval.value), max(interval.high, interval.value)  # a mean of ones may be 1 + 2e-16
    ends = {"value": interval.value, "low": low, "high": high}
    return {
        "claim": claim["claim"],
        **{name: None if math.isnan(number) else number for name, number in ends.items()},
        "rows": found.rows,
        "clusters": found.clusters,
        "sequences": sequences,
        "premise_value": None if found.premise is None or math.isnan(found.premise) else found.premise,
        "reason": _find_reason(claim, found, sequences),
    }


def _find_reason(claim: dict[str, Any], found: Estimated, sequences: int) -> str | None:
    """Why a claim cannot be tested; None if it can."""
    if found.reason is not None:
        return found.reason
    if found.rows < claim["least_rows"]:
        return f"it rests on {found.rows} {claim['rows_of']} and needs {claim['least_rows']}"
    if sequences == 1:
        return "one sequence says nothing about others"
    if found.clusters == 1:
        return "heads of one KV group say nothing about others"
    if math.isnan(found.interval.low):
        return "too few resampled studies have such a number"
    return None
