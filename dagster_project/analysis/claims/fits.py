"""Fits of Assumptions 2 and 3: decay of similarity with distance, and weight by position (Figures 3 and 4)."""

from functools import partial

import numpy as np

from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.records import (
    LEAST_BEYOND,
    LOGARITHM,
    Claim,
    Measure,
    Part,
    Samples,
    beyond,
    require,
)
from geometry.statistics.intervals import POSITIVE, UNBOUNDED, compute_pseudo_values
from reports.findings.claims import BEYOND

LEAST_SIMILARITY = 0.1
"""Mean cosine of neighbours below which there is no similarity that could decay: zeros would fit such a curve."""

MEASURES = {
    "similarity_mae": Measure(
        "mean over KV heads whose neighbours are similar of the mean absolute error of exp(-β k) as a cosine",
        "mean absolute error",
        POSITIVE,
    ),
    **beyond("similarity_mae", "error minus that of random weights", UNBOUNDED),
    "similarity_gain": Measure(
        "mean over KV heads whose neighbours are similar of the amount by which the BIC of exp(-β k) is below those of "
        "a constant and of a fit with a floor, for each independent distance",
        "gain in BIC over a constant and a floor",
    ),
    "similarity_floor": Measure(
        "mean over KV heads whose neighbours are similar of the cosine that remains at large distance, c of "
        "c + (1 - c) exp(-β k)",
        "floor",
    ),
    "sink_over_plateau": Measure(
        "weight of the sink over that of a plateau key, p_sink / p_base, in the fit to the model's mean weights",
        "sink over plateau",
        POSITIVE,
        LOGARITHM,
    ),
    "oscillation": Measure(
        "by how much the BIC of the best fit to the model's mean weights with an oscillation is below that of the best "
        "without, for each independent position",
        "gain in BIC for each position",
    ),
    "phases_r2": Measure("R² on a log scale of the fit of the four phases to the model's mean weights", "R²"),
}


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name."""
    similarity = evidence.ask_means(
        f"""
        WITH alike AS (
            SELECT layer, kv_head
            FROM cosine_by_distance
            JOIN assumption_similarity USING (layer, kv_head)
            WHERE distance = 1 AND mean_cosine >= {LEAST_SIMILARITY} AND mae IS NOT NULL
        )
        SELECT
            sequence,
            unnest(['similarity_mae', 'similarity_gain', 'similarity_floor']) AS measure,
            unnest([avg(mae), avg(gain), avg(floor)]) AS value,
            unnest([count(mae), count(gain), count(floor)]) AS rows
        FROM assumption_similarity_by_sequence
        SEMI JOIN alike USING (layer, kv_head)
        GROUP BY sequence
        """
    )
    return {**similarity, **_measure_weights(evidence)}


def _measure_weights(evidence: Evidence) -> Samples:
    """Measures of the fit to the model's mean weights, with the jackknife; none without a fit."""
    columns = "ln(p_sink / nullif(p_base, 0)) AS sink_over_plateau, oscillation, r2_log AS phases_r2"
    whole = evidence.ask_columns(
        f"SELECT {columns}, heads FROM assumption_weights_model WHERE query = $query AND status = 'ok' AND p_sink > 0"
    )
    left_out = evidence.ask_columns(f"SELECT {columns} FROM assumption_weights_by_sequence ORDER BY sequence")
    if not whole["heads"].size:
        return {}
    return {
        name: Sample(
            compute_pseudo_values(value, left_out[name])
            if left_out[name].size
            else np.full(evidence.sequences, np.nan),
            int(whole["heads"][0]),
            value,
        )
        for name in ("sink_over_plateau", "oscillation", "phases_r2")
        for value in (float(whole[name][0]),)
        if not np.isnan(value)
    }


def _explain_no_similarity(evidence: Evidence) -> str | None:
    pairs = "SELECT count(*) FROM cosine_by_distance WHERE distance = 1"
    if evidence.count(f"{pairs} AND mean_cosine >= {LEAST_SIMILARITY}"):
        return None
    return f"neighbours have a mean cosine of {LEAST_SIMILARITY:g} in 0 of {evidence.count(pairs)} KV heads"


ALIKE = f"neighbours with a mean cosine of {LEAST_SIMILARITY:g} or more: exp(-β k) fits a curve of zeros"

_of_similarity = partial(
    Claim,
    rows_of="KV heads",
    least_rows=4,
    premise=ALIKE,
    explain_gap=_explain_no_similarity,
)
_of_weights = partial(
    Claim,
    premise="a fit of the model's mean weights",
    explain_gap=require(
        "SELECT count(*) FROM assumption_weights_model WHERE query = $query AND status = 'ok'",
        "the mean weights have no fit",
    ),
)

CLAIMS = (
    _of_similarity(
        "similarity_decays_exponentially",
        "Figure 3",
        "exp(-β k) fits the mean cosine with an error of 9 % on average",
        (
            Part("similarity_mae", "<=", 0.1),
            Part("similarity_gain", ">"),
            Part(f"similarity_mae{BEYOND}", "<=", -LEAST_BEYOND),
        ),
        "the similarity of value states decays exponentially with distance, more nearly so than with random weights",
        "the similarity of value states does not decay exponentially with distance, more nearly so than with random "
        "weights",
        "similarity-errors",
        premise=f"{ALIKE}, and a twin of random weights",
        null="a constant, and a decay to a floor: by BIC better than both; random weights, whose value states are "
        "alike where tokens are: with a smaller error",
    ),
    _of_similarity(
        "similarity_decays_to_zero",
        "Figure 3",
        "Similarity decays to 0, with no floor",
        (Part("similarity_floor", "<=", 0.05),),
        "similarity decays to nearly 0",
        "similarity decays to a floor above 0",
        "similarity-errors",
        null="cosines that are 0 everywhere: neighbours must be similar",
    ),
    _of_weights(
        "sink_dominates",
        "Figure 4",
        "The sink has a hundred times the weight of a key on the plateau",
        (Part("sink_over_plateau", ">=", 100),),
        "the sink has a hundred times the weight of a plateau key",
        "the sink has less than a hundred times the weight of a plateau key",
        "attention-by-position",
        null="uniform weights: 1",
    ),
    _of_weights(
        "four_phases",
        "Figure 4",
        "Weights have four phases: sink, plateau, oscillation, growth",
        (Part("oscillation", ">"),),
        "the mean weights oscillate between plateau and growth",
        "the mean weights do not oscillate between plateau and growth",
        "weight-variants",
        null="a plateau with growth: by BIC better than it",
    ),
    _of_weights(
        "phases_fit",
        "Figure 4",
        "The four phases describe the weights by position",
        (Part("phases_r2", ">=", 0.9),),
        "the four phases describe the mean weights by position",
        "the four phases do not describe the mean weights by position",
        "attention-by-position",
        null="a constant: R² = 0",
    ),
)
