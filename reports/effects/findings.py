"""Findings on what heads do: the loss without each head and its geometry, and the loss with fewer keys."""

from collections.abc import Iterable, Sequence

from geometry.statistics.verdicts import ERROR_RATE
from reports.findings.claims import format_interval
from reports.findings.listings import DASH, Cell, Listing, format_number, format_own_interval, tabulate
from reports.findings.numbers import Row, count, count_sides, join_sentences, name_head, number

ERROR = "error_renormalised_16"
"""The measure that ``loss_associations`` compares others with."""

MEASURES = {
    "recall": "Recall",
    "elbow": "Elbow N",
    "retriever_score": "Retriever score",
    "mixer_score": "Mixer score",
    "reset_score": "Reset score",
    "rho_0": "ρ₀",
    "effective_keys": "Effective keys",
    ERROR: "Error of 16 keys",
    "error_mean_16": "Error with the mean for the rest",
    "weight_left_out_16": "Weight left out of 16 keys",
}
"""Measures of a head that are correlated with the loss without it."""

KINDS = {
    "zero": "set to zero",
    "mean": "replaced by its mean",
    "sink": "replaced by the sink’s value state",
    "selected": "taken over the 16 keys of largest weight",
}
"""What the output of a head is replaced by."""

POLICIES = {
    "same_n": "same N",
    "same_n_dropped": "same N, rest dropped",
    "same_n_mean": "same N, rest → mean",
    "same_n_mean_of_rest": "same N, rest → its mean",
    "off_mean": "off the mean",
    "off_mean_dropped": "off the mean, rest dropped",
    "off_mean_mean": "off the mean, rest → mean",
    "off_mean_mean_of_rest": "off the mean, rest → its mean",
    "same_n_window": "same N with window",
    "same_n_window_mean": "same N with window, rest → mean",
    "off_mean_window": "off the mean with window",
    "off_mean_window_mean": "off the mean with window, rest → mean",
    "elbow": "N by elbow",
    "recall": "N by Recall",
    "n_90": "N by 90 % of the weight",
    "error": "N by error",
    "error_mean": "N by error, rest → mean",
    "mass": "share of weight",
    "mass_mean": "share of weight, rest → mean",
    "random_budgets": "N by elbow, shuffled",
    "sink_recent": "sink and recent",
    "full_heads_elbow": "all keys by elbow",
    "full_heads_mass": "all keys by mass",
    "full_heads_random": "all keys at random",
}
"""Policies of sparse attention, as legends name them; the weight of the rest is renormalised if nothing is said."""


def describe_ablation(rows: Sequence[Row]) -> str:
    """The head with the largest increase of the loss, and those with one beyond its interval (``ablation_by_head``)."""
    most = max(rows, key=lambda row: row["delta_loss"])
    return join_sentences(
        f"With the output of one head {KINDS[most['kind']]}, the loss of {number(most['plain_loss'])} nats rises most "
        f"without {name_head(most)}, by {format_interval(most, 'delta_loss')}.",
        count_sides(rows) or "With one sequence there are no intervals.",
    )


def format_correlation(row: Row) -> str:
    """Format a correlation within layers with its interval and p (``loss_associations``)."""
    return f"{format_own_interval(row, 'correlation')}, p = {number(row['p'])}"


def describe_correlations(rows: Sequence[Row]) -> str:
    """The measure most correlated with the loss, and those that pass their test (``loss_associations``)."""
    if not rows:
        return "Too few heads have a loss and a measure for a correlation."
    most = max(rows, key=lambda row: abs(row["correlation"]))
    clear = [row["measure"] for row in rows if row["p_holm"] <= ERROR_RATE]
    return join_sentences(
        f"Within layers the loss goes most with {MEASURES[most['measure']]}: rank correlation "
        f"{format_correlation(most)}.",
        f"Of {count(len(rows), 'measure')}, {_join_measures(clear)} (over sequences and over permutations of KV groups "
        "within layers, 5 % over all of them).",
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


def summarise_effects(rows: Sequence[Row], associations: Sequence[Row]) -> str:
    """Summarise what heads do in a line for the terminal (``ablation_by_head``, ``loss_associations``)."""
    of_kind = [row for row in associations if row["kind"] == rows[0]["kind"]]
    return join_sentences(describe_ablation(rows), describe_correlations(of_kind))


WITHIN: dict[str, Cell] = {
    "Measure": lambda row: MEASURES[row["measure"]],
    "Within layers (interval)": lambda row: format_own_interval(row, "correlation"),
}
"""First columns of tables of rank correlations."""


def tabulate_correlations(rows: Iterable[Row]) -> Listing:
    """Rank correlations within layers, and over all heads (``loss_associations``)."""
    return tabulate(
        rows,
        WITHIN
        | {
            "p": lambda row: number(row["p"]),
            "Over all heads": lambda row: format_number(row["correlation_over_all"]),
            "Heads": lambda row: f"{row['heads']:,}",
        },
    )


def tabulate_error(rows: Iterable[Row]) -> Listing:
    """How far the error of 16 keys is ahead of other measures (``loss_associations`` of one kind)."""
    return tabulate(
        rows,
        WITHIN
        | {
            "Error ahead by (interval)": lambda row: format_own_interval(row, "error_ahead") or DASH,
            "p (Holm)": lambda row: format_number(row["error_ahead_p_holm"]),
        },
    )
