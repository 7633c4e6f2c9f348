"""Findings on the paper's claims, in total and claim by claim; all from the verdicts alone."""

from collections import Counter
from collections.abc import Mapping, Sequence

from reports.findings.numbers import Row, count, join_sentences, number

VERDICTS = {
    "supported": ("✓", "Supported"),
    "not supported": ("✗", "Not supported"),
    "undecided": ("~", "Undecided"),
    "not testable": ("?", "Not testable"),
}
"""For each verdict its symbol and its word."""

CLAUSES = {
    "norms_stable": (
        "norms of value states hardly vary over positions",
        "norms of value states vary over positions",
    ),
    "norms_stable_within_sequence": (
        "norms of value states are nearly constant within a sequence",
        "norms of value states vary within a sequence",
    ),
    "sink_compressed": (
        "the value state of the sink is much shorter than the others",
        "the value state of the sink is not much shorter than the others",
    ),
    "similarity_decays_exponentially": (
        "the similarity of value states decays exponentially with distance",
        "the similarity of value states does not decay exponentially with distance",
    ),
    "exponential_preferred": (
        "similarity decays to 0 in most KV heads",
        "similarity decays to a floor above 0 in most KV heads",
    ),
    "sink_dominates": (
        "the sink has a hundred times the weight of a plateau key",
        "the sink has less than a hundred times the weight of a plateau key",
    ),
    "four_phases": (
        "the mean weights oscillate between plateau and growth",
        "the mean weights do not oscillate between plateau and growth",
    ),
    "phases_fit": (
        "the four phases describe the mean weights by position",
        "the four phases do not describe the mean weights by position",
    ),
    "premise_holds": (
        "the theorems’ premise Δ > 0 holds in most selections",
        "the theorems’ premise Δ > 0 fails in most selections",
    ),
    "precision_covered": (
        "the mean Precision of heads lies within its bounds where the theorems apply",
        "the mean Precision of heads leaves its bounds where the theorems apply",
    ),
    "recall_covered": (
        "the mean Recall of heads lies within its bounds where the theorems apply",
        "the mean Recall of heads leaves its bounds where the theorems apply",
    ),
    "precision_enveloped": (
        "the model’s mean Precision lies within its mean bounds",
        "the model’s mean Precision leaves its mean bounds",
    ),
    "recall_enveloped": (
        "the model’s mean Recall lies within its mean bounds",
        "the model’s mean Recall leaves its mean bounds",
    ),
    "upper_tight": ("upper bounds are tight", "upper bounds are not tight"),
    "lower_conservative": (
        "lower bounds are farther from the means than upper ones",
        "lower bounds are no farther from the means than upper ones",
    ),
    "small_n_elbow": (
        "separability bends at N = 4 or below",
        "separability bends above N = 4",
    ),
    "intermediate_weakest": (
        "separability is weakest at intermediate N",
        "separability is not weakest at intermediate N",
    ),
    "distinguishable_share_settles": (
        "the share of the selected keys that can be told apart settles at 0.70 to 0.85",
        "the share of the selected keys that can be told apart does not settle at 0.70 to 0.85",
    ),
    "sink_raises_recall": (
        "Recall rises with sink similarity at nearly every N",
        "Recall does not rise with sink similarity at nearly every N",
    ),
    "sink_effect_peaks_early": (
        "sink similarity and Recall are most correlated at small N",
        "sink similarity and Recall are most correlated beyond small N",
    ),
    "sink_predicts_recall": (
        "sink similarity predicts Recall",
        "sink similarity does not predict Recall",
    ),
    "sink_predicts_precision": (
        "sink similarity predicts Precision",
        "sink similarity does not predict Precision",
    ),
    "sink_widens_r_min": (
        "the radius r_min grows with sink similarity",
        "the radius r_min does not grow with sink similarity",
    ),
    "regimes_fit": (
        "nearly all heads are Retriever, Mixer or Reset",
        "many heads are neither Retriever nor Mixer nor Reset",
    ),
    "retrievers_first": (
        "Retrievers lie in earlier layers than other heads",
        "Retrievers do not lie in earlier layers than other heads",
    ),
    "resets_early": (
        "Reset heads prevail in the first quarter of the layers",
        "Reset heads do not prevail in the first quarter of the layers",
    ),
    "mixers_prevail_deep": (
        "Mixers prevail in the upper half of the layers",
        "Mixers do not prevail in the upper half of the layers",
    ),
    "kinds_in_order": (
        "kinds follow each other with depth as in the paper: Retriever, Reset, Mixer",
        "kinds do not follow each other with depth as in the paper: Retriever, Reset, Mixer",
    ),
    "margin_positive_early": (
        "Δ is above 0 in most of regime II",
        "Δ is not above 0 in most of regime II",
    ),
    "margin_lost_in_valleys": (
        "Δ is not above 0 in most of regime IV",
        "Δ is above 0 in most of regime IV",
    ),
    "recall_predicts_loss": (
        "Recall correlates with the loss that removing a head costs",
        "Recall does not correlate with the loss that removing a head costs",
    ),
    "elbow_budgets_gain": (
        "budgets by elbow lose less than the same N for all heads",
        "budgets by elbow lose no less than the same N for all heads",
    ),
    "recall_budgets_gain": (
        "budgets by Recall lose less than the same N for all heads",
        "budgets by Recall lose no less than the same N for all heads",
    ),
    "elbow_budgets_beat_random": (
        "budgets by elbow lose less than the same numbers given to heads at random",
        "budgets by elbow lose no less than the same numbers given to heads at random",
    ),
    "elbow_chooses_full_heads": (
        "heads of large elbows need all keys more than heads chosen at random",
        "heads of large elbows need all keys no more than heads chosen at random",
    ),
    "selection_sharpens": (
        "top-N selection separates better than N keys at random",
        "top-N selection does not separate better than N keys at random",
    ),
    "values_sharpen": (
        "value states separate the selected keys better than shuffled ones do",
        "value states do not separate the selected keys better than shuffled ones do",
    ),
}
"""For each claim a clause that states it, and one that denies it."""

SIGNS = {"<=": "at most", "<": "below", ">=": "at least", ">": "above"}
"""Words for a direction before a threshold."""


def summarise_claims(rows: Sequence[Row]) -> str:
    """How many claims have each verdict, and how many of those supported a random model supports too (``claims``)."""
    counts = Counter(row["verdict"] for row in rows)
    others = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict != "supported")
    supported = (
        f"{counts['supported']} {'is' if counts['supported'] == 1 else 'are'} supported{_compare_with_twin(rows)}"
    )
    return f"Of {count(len(rows), 'claim')} of the paper, {supported}; {others}."


def _compare_with_twin(rows: Sequence[Row]) -> str:
    """Compare the supported claims with random weights; empty if none is supported."""
    found = Counter(row["finding"] for row in rows if row["verdict"] == "supported")
    if not found:
        return ""
    told = {
        True: f"{found[True]} of them not by random weights",
        False: f"{found[False]} by random weights too and so not a finding",
        None: f"{found[None]} with no result for random weights",
    }
    return f" ({', '.join(text for finding, text in told.items() if found[finding])})"


def describe_claims(rows: Sequence[Row], *names: str) -> str:
    """Verdicts of some claims, a sentence each (``claims``); claims that are not testable are left out.

    The sentences come from the verdicts alone, so that no two on a page can contradict each other.
    """
    chosen = {row["claim"]: row for row in rows if row["verdict"] != "not testable"}
    return join_sentences(*(describe_claim(chosen[name]) for name in names if name in chosen))


def describe_claim(row: Row) -> str:
    """Verdict of one claim in a sentence (``claims``)."""
    clause, denial = CLAUSES[row["claim"]]
    if row["verdict"] == "not testable":
        return f"Whether {clause} cannot be tested: {row['reason'] or 'no interval'}."
    if row["verdict"] == "undecided":
        return f"Whether {clause} is undecided ({format_interval(row)}, {format_threshold(row)} required)."
    told = clause if row["verdict"] == "supported" else denial
    random = ", as with random weights" if row["verdict"] == row["twin_verdict"] else ""
    return f"{told[0].upper()}{told[1:]}{random} ({format_interval(row)}, {format_threshold(row)} required)."


def describe_agreement(rows: Mapping[str, Sequence[Row]]) -> str:
    """Number of claims on which several studies agree (``claims`` of each)."""
    found = [[row["verdict"] for row in of_study] for of_study in rows.values()]
    decided = [same for same in zip(*found, strict=True) if set(same) <= {"supported", "not supported"}]
    same = sum(len(set(verdicts)) == 1 for verdicts in decided)
    return f"Of the {count(len(decided), 'claim')} that are decided in every study, the studies agree on {same}."


def format_threshold(row: Row) -> str:
    """Format the value that a claim requires of its measure."""
    return f"{SIGNS[row['direction']]} {number(row['threshold'])}"


def format_interval(row: Row) -> str:
    """Format the value of a claim with its interval; empty without a value."""
    if row["value"] is None:
        return ""
    if row["low"] is None:
        return number(row["value"])
    return f"{number(row['value'])} ({number(row['low'])} to {number(row['high'])})"
