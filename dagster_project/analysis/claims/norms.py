"""Norms of value states: how they vary over positions, and the sink's beside the others (Assumption 1, Figure 2)."""

import numpy as np

from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.records import Claim, Measure, Part, Samples
from geometry.arrays import F64
from geometry.statistics.intervals import POSITIVE

SINK_TIMES = 10.0
"""Position 0 is a sink of a head if its weight is at least so many times the uniform share; a hundred in the paper."""

MEASURES = {
    "cv_of_expected_norm": Measure(
        "median over KV heads of the coefficient of variation over positions of the expected norm of value states",
        "variation of the expected norm",
        POSITIVE,
    ),
    "cv_within_sequence": Measure(
        "median over KV heads of the coefficient of variation of the norms of value states within one sequence",
        "variation within a sequence",
        POSITIVE,
    ),
    "lambda_sink": Measure(
        "median over KV heads of λ, the norm of the sink's value state over the median of the others", "λ", POSITIVE
    ),
    "lambda_of_sinks": Measure(
        f"median of λ over KV heads of which a head gives the sink {SINK_TIMES:g} times the uniform share or more",
        "λ where there is a sink",
        POSITIVE,
    ),
}


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name."""
    within = evidence.ask_means(
        f"""
        WITH sinks AS (
            SELECT layer, kv_head, bool_or(is_sink) AS has_sink
            FROM heads
            JOIN (
                SELECT layer, head, avg(sink_weight * n_keys) >= {SINK_TIMES} AS is_sink
                FROM attention_rows
                WHERE query = $query
                GROUP BY layer, head
            ) USING (layer, head)
            GROUP BY layer, kv_head
        )
        SELECT sequence, 'cv_within_sequence' AS measure, median(cv_within_sequence) AS value, count(*) AS rows
        FROM assumption_norms_by_sequence
        GROUP BY sequence
        UNION ALL
        SELECT sequence, 'lambda_sink', median(lambda_sink), count(lambda_sink)
        FROM assumption_norms_by_sequence
        GROUP BY sequence
        UNION ALL
        SELECT sequence, 'lambda_of_sinks', median(lambda_sink), count(lambda_sink)
        FROM assumption_norms_by_sequence
        SEMI JOIN (FROM sinks WHERE has_sink) USING (layer, kv_head)
        GROUP BY sequence
        """
    )
    return {**within, **_measure_expected(evidence)}


def _measure_expected(evidence: Evidence) -> Samples:
    """The median of ``cv_of_expected_norm``, with the jackknife; none without it."""
    known = "FROM assumption_norms WHERE cv_of_expected_norm IS NOT NULL"
    whole = evidence.ask_columns(f"SELECT cv_of_expected_norm AS value {known}")["value"]
    left_out = evidence.ask_columns(
        "SELECT sequence, median(cv_without_sequence) AS value FROM assumption_norms_by_sequence GROUP BY 1 ORDER BY 1"
    )["value"]
    if not whole.size:
        return {}
    return {"cv_of_expected_norm": Sample.of_jackknife(float(np.median(whole)), left_out, whole.size)}


def read_sink_times(evidence: Evidence) -> F64:
    """How many times the uniform share the sink gets on average from each head, (heads,); NaN if it is hidden."""
    statement = (
        "SELECT avg(sink_weight * n_keys) AS times FROM attention_rows WHERE query = $query GROUP BY layer, head"
    )
    return evidence.ask_columns(statement)["times"]


def _explain_no_sink(evidence: Evidence) -> str | None:
    times = read_sink_times(evidence)
    none = f"position 0 gets {SINK_TIMES:g} times the uniform share in 0 of {times.size} heads"
    return None if (times >= SINK_TIMES).any() else none


CLAIMS = (
    Claim(
        "norms_stable",
        "Figure 2 right",
        "Norms of value states hardly vary over positions",
        (Part("cv_of_expected_norm", "<=", 0.05),),
        "norms of value states hardly vary over positions",
        "norms of value states vary over positions",
        "norm-variation",
        null="texts of one kind have the same tokens at every position, so means over them do not vary for any model: "
        "holds by construction",
        rows_of="KV heads",
        explain_gap=lambda _: "it holds by construction, of means over texts that may have any token at any position",
    ),
    Claim(
        "norms_stable_within_sequence",
        "Figure 2 right",
        "Norms of value states are effectively constant",
        (Part("cv_within_sequence", "<=", 0.05),),
        "norms of value states are nearly constant within a sequence",
        "norms of value states vary within a sequence",
        "norm-variation",
        null="random weights: norms of d independent numbers vary by 1/√(2d), 6 % for d = 128",
        rows_of="KV heads",
    ),
    Claim(
        "sink_compressed",
        "Figure 2 left",
        "The value state of the sink is much shorter than the others",
        (Part("lambda_of_sinks", "<=", 0.5),),
        "where a head has a sink, the sink’s value state is much shorter than the others",
        "where a head has a sink, the sink’s value state is not much shorter than the others",
        "value-norm",
        null="value states of one length: λ = 1",
        least_rows=4,
        rows_of="KV heads with a sink",
        premise="KV heads one of whose heads has a sink",
        explain_gap=_explain_no_sink,
    ),
)
