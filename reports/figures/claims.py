"""The paper's claims at a glance."""

from reports import listings
from reports.figures.parts import NOT_ANALYSED, Figure, Section, Source, missing
from reports.findings import claims as findings

TABLE = "claims-table"
"""Key of the figure that shows every claim."""

SHOWN_BY = {
    "norms_stable": "norm-variation",
    "norms_stable_within_sequence": "norm-variation",
    "sink_compressed": "value-norm",
    "similarity_decays_exponentially": "similarity-errors",
    "exponential_preferred": "similarity-errors",
    "sink_dominates": "attention-by-position",
    "four_phases": "weight-variants",
    "phases_fit": "attention-by-position",
    "premise_holds": "margins",
    "precision_covered": "coverage",
    "recall_covered": "coverage",
    "precision_enveloped": "precision-bounds",
    "recall_enveloped": "recall-bounds",
    "upper_tight": "precision-bounds",
    "lower_conservative": "precision-bounds",
    "small_n_elbow": "elbows",
    "intermediate_weakest": "chance-by-n",
    "sink_raises_recall": "sink-effect",
    "sink_effect_peaks_early": "sink-effect",
    "sink_predicts_recall": "sink-effect",
    "sink_predicts_precision": "sink-effect",
    "sink_widens_r_min": "sink-effect",
    "regimes_fit": "kinds-plane",
    "retrievers_first": "kinds-by-layer",
    "resets_early": "kinds-by-layer",
    "mixers_prevail_deep": "kinds-by-layer",
    "kinds_in_order": "kinds-by-layer",
    "margin_positive_early": "regimes",
    "margin_lost_in_valleys": "regimes",
    "selection_sharpens": "chance-by-n",
    "values_sharpen": "chance-by-n",
}
"""For each claim, the figure that shows it best; where none does, the table of all."""


def section(source: Source) -> Section:
    """What of the paper this study supports."""
    return Section(
        "claims",
        "What of the paper this study supports",
        "Each row is a statement of the paper with its value, interval and what it needs. The intervals of all rows "
        "hold at once with a probability of 95 %; they come from resampling sequences and KV groups. A claim that a "
        "model of random weights supports too is no finding.",
        (_claims(source),),
    )


def _claims(source: Source) -> Figure:
    title, answer = "Claims of the paper", source.of_study("claims")
    rows = answer.rows()
    if not rows:
        return missing(TABLE, title, answer, NOT_ANALYSED)
    reading = (
        "What is measured for each claim, and on how many rows, is in the table below. The paper measures on "
        "LLaMA-2-7B and others at 1024 tokens."
    )
    listing = listings.claims(rows, SHOWN_BY)
    return Figure(TABLE, title, findings.claims(rows), reading, answer.table, answer, listing=listing)
