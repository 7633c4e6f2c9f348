"""The paper's claims with their verdicts."""

from reports import listings
from reports.figures.parts import NOT_ANALYSED, Figure, Section, Source, make_empty_figure
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
    "distinguishable_share_settles": "distinguishable-share",
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
    "recall_predicts_loss": "loss-and-geometry",
    "elbow_budgets_gain": "loss-by-keys",
    "recall_budgets_gain": "loss-by-keys",
    "elbow_budgets_beat_random": "loss-by-keys",
    "elbow_chooses_full_heads": "loss-by-keys",
    "selection_sharpens": "chance-by-n",
    "values_sharpen": "chance-by-n",
}
"""For each claim, the figure that shows it best, or the table of all claims if none does."""


def build_section(source: Source) -> Section:
    """The paper's claims, and whether this study supports them."""
    return Section(
        "claims",
        "Which claims of the paper this study supports",
        "Each row is a statement of the paper with its measured value, interval and required value. The intervals of "
        "all rows hold simultaneously with a probability of 95 %; they come from resampling sequences and KV groups. A "
        "claim that a model with random weights supports too is not a finding.",
        (_build_claims(source),),
    )


def _build_claims(source: Source) -> Figure:
    title, answer = "Claims of the paper", source.ask_study("claims")
    rows = answer.rows()
    if not rows:
        return make_empty_figure(TABLE, title, answer, NOT_ANALYSED)
    reading = (
        "The table below gives the measure of each claim and the number of its rows. The paper measures LLaMA-2-7B "
        "and other models at 1024 tokens."
    )
    listing = listings.tabulate_claims(rows, _assign_figures(source))
    return Figure(TABLE, title, findings.summarise_claims(rows), reading, answer.table, answer, listing=listing)


def _assign_figures(source: Source) -> dict[str, str]:
    """Map claims to figures as ``SHOWN_BY``, or to the table of all claims if this study lacks the figure."""
    answers = {
        "distinguishable-share": source.ask_query("distinguishable_by_n"),
        "loss-and-geometry": source.ask_study("ablation_by_head"),
        "loss-by-keys": source.ask_study("loss_by_keys"),
    }
    absent = {figure for figure, answer in answers.items() if not answer.table.num_rows}
    return {claim: TABLE if figure in absent else figure for claim, figure in SHOWN_BY.items()}
