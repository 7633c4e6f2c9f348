"""Findings on what heads do: the loss without each head and its geometry, and the loss with fewer keys."""

from collections.abc import Mapping, Sequence

import numpy as np

from geometry.statistics.rank_correlation import RankCorrelation, rank_correlation
from reports.findings.numbers import Row, count, drop_nulls, join_sentences, name_head, number

MEASURES = {
    "recall": "Recall",
    "elbow": "Elbow N",
    "retriever_score": "Retriever score",
    "mixer_score": "Mixer score",
    "reset_score": "Reset score",
    "rho_0": "ρ₀",
    "effective_keys": "Effective keys",
}
"""Measures of a head that are correlated with the loss without it."""

KINDS = {"zero": "set to zero", "mean": "replaced by its mean", "sink": "replaced by the sink’s value state"}
"""What the output of a head is replaced by."""

POLICIES = {
    "same_n": "same N",
    "elbow": "N by elbow",
    "recall": "N by Recall",
    "mass": "share of weight",
    "random_budgets": "N by elbow, shuffled",
    "sink_recent": "sink and recent",
    "full_heads_elbow": "all keys by elbow",
    "full_heads_mass": "all keys by mass",
    "full_heads_random": "all keys at random",
}
"""Policies of sparse attention, as legends name them."""

LEVEL = 0.05
"""Permutation p below which a correlation counts as clear, over the number of measures."""


def describe_ablation(rows: Sequence[Row]) -> str:
    """The head with the largest increase, and number of heads with a clear one (``ablation_by_head``)."""
    most, clear = max(rows, key=lambda row: row["delta_loss"]), drop_nulls(rows, "low")
    rises, falls = sum(row["low"] > 0 for row in clear), sum(row["high"] < 0 for row in clear)
    interval = "" if most["low"] is None else f" ({number(most['low'])} to {number(most['high'])})"
    return join_sentences(
        f"With the output of one head {KINDS[most['kind']]}, the loss of {number(most['plain_loss'])} nats rises most "
        f"without {name_head(most)}, by {number(most['delta_loss'])}{interval}.",
        f"The 95 % interval lies above 0 in {rises:,} of {count(len(rows), 'head')} and below in {falls:,}."
        if clear
        else "With one sequence there are no intervals.",
    )


def correlate_measures(rows: Sequence[Row]) -> dict[str, RankCorrelation]:
    """Rank correlation of each measure with the loss, KV groups as clusters (``ablation_by_head``)."""
    groups = np.unique([(row["layer"], row["kv_head"]) for row in rows], axis=0, return_inverse=True)[1].ravel()
    loss = np.array([row["delta_loss"] for row in rows], np.float64)
    found = {
        measure: rank_correlation(loss, np.array([row[measure] for row in rows], np.float64), groups)
        for measure in MEASURES
    }
    return {measure: one for measure, one in found.items() if np.isfinite(one.correlation)}


def format_correlation(one: RankCorrelation) -> str:
    """Format a correlation with its interval and p."""
    interval = f" ({number(one.low)} to {number(one.high)})" if np.isfinite(one.low) else ""
    return f"{number(one.correlation)}{interval}, p = {number(one.p)}"


def describe_correlations(found: Mapping[str, RankCorrelation]) -> str:
    """The measure most correlated with the loss, and the measures with a clear correlation, by name."""
    if not found:
        return "Too few heads have a loss and a measure for a correlation."
    most = max(found, key=lambda measure: abs(found[measure].correlation))
    clear = [measure for measure, one in found.items() if one.p * len(found) <= LEVEL]
    return join_sentences(
        f"Over heads the loss correlates most with {MEASURES[most]}: rank correlation "
        f"{format_correlation(found[most])}.",
        f"Of {count(len(found), 'measure')}, {_join_measures(clear)} (permutations of KV groups, 5 % over "
        "all of them).",
    )


def _join_measures(clear: Sequence[str]) -> str:
    if not clear:
        return "none has a significant correlation"
    names = ", ".join(MEASURES[measure] for measure in clear)
    return f"{names} {'has a significant correlation' if len(clear) == 1 else 'have significant correlations'}"


def describe_budgets(rows: Sequence[Row]) -> str:
    """Cheapest and most expensive policy at the smallest budget, with and without access to the weights."""
    least = min(row["budget"] for row in rows)
    mine = [row for row in rows if row["budget"] == least]
    parts = []
    for needs, said in (("weights", "that see the weights"), ("statistics", "that know only past statistics")):
        some = [row for row in mine if row["needs"] == needs]
        if some:
            best = min(some, key=lambda row: row["delta_loss"])
            worst = max(some, key=lambda row: row["delta_loss"])
            parts.append(
                f"of the policies {said}, “{POLICIES.get(best['policy'], best['policy'])}” costs least, "
                f"{number(best['delta_loss'])} nats, and “{POLICIES.get(worst['policy'], worst['policy'])}” most, "
                f"{number(worst['delta_loss'])}"
            )
    return f"With about {number(mine[0]['keys_kept'])} keys per query, {'; '.join(parts)}."


def summarise_effects(rows: Sequence[Row]) -> str:
    """Summarise what heads do in a line for the terminal (``ablation_by_head``)."""
    return join_sentences(describe_ablation(rows), describe_correlations(correlate_measures(rows)))
