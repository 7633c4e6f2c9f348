"""Findings on the correlation of Recall with the sink's similarity."""

from collections.abc import Sequence
from math import sqrt

from reports.findings.numbers import Row, count, drop_nulls, join_sentences, number

FEWEST = 3
"""A correlation over fewer heads than this is −1 or 1 for any values."""

NO_RHO_0 = "a sliding window hides the sink, or its value state or all others have norm 0"
"""Why a head that attends to two keys or more has no ρ_0."""

PAPERS_PEAK = 3
"""N at which the paper finds the correlation highest."""


def find_peak(curve: Sequence[Row]) -> Row:
    """The row whose correlation is farthest from 0, the first of several (``sink_effect_by_n``).

    At least one row has a correlation.
    """
    return max(drop_nulls(curve, "correlation"), key=lambda row: abs(row["correlation"]))


def compute_chance_level(row: Row) -> float:
    """How far from 0 the correlation of unrelated quantities may lie by chance: 2/√(KV heads).

    Query heads that share value states share ρ_0, so they are not independent.
    """
    return 2 / sqrt(row["kv_heads"])


def describe_sink_effect(curve: Sequence[Row]) -> str:
    """The N at which the correlation is farthest from 0, and its value at the paper's peak (``sink_effect_by_n``)."""
    peak = find_peak(curve)
    interval = (
        f" (95 % interval over sequences {_format_interval(peak)})"
        if peak["correlation_ci_low"] is not None
        else " (one sequence: no interval)"
    )
    return join_sentences(
        f"Over {count(peak['heads'], 'head')}, the correlation of Recall and ρ₀ is farthest from 0 at N = {peak['n']}, "
        f"with {number(peak['correlation'])}{interval}.",
        _describe_paper_peak(curve, peak),
    )


def _format_interval(row: Row) -> str:
    return f"{number(row['correlation_ci_low'])} to {number(row['correlation_ci_high'])}"


def _describe_paper_peak(curve: Sequence[Row], peak: Row) -> str:
    """Describe the correlation at the paper's peak, unless that is the peak here too."""
    there = [row["correlation"] for row in drop_nulls(curve, "correlation") if row["n"] == PAPERS_PEAK != peak["n"]]
    return f"At N = {PAPERS_PEAK}, where the paper finds the peak, it is {number(there[0])}." if there else ""


def describe_sink_effects(curves: Sequence[Row]) -> str:
    """Where the correlation of each study peaks (``sink_effect_by_n`` with the column study)."""
    peaks = {
        study: find_peak([row for row in curves if row["study"] == study])
        for study in dict.fromkeys(row["study"] for row in drop_nulls(curves, "correlation"))
    }
    told = [f"{study} {number(peak['correlation'])} at N = {peak['n']}" for study, peak in peaks.items()]
    return f"Correlation farthest from 0: {'; '.join(told)}." if told else ""


def explain_no_sink_effect(curve: Sequence[Row]) -> str:
    """Explain why no N has a correlation (``sink_effect_by_n``, with at least one row)."""
    heads = max(row["heads"] for row in curve)
    if not heads:
        return f"No head has a ρ₀: {NO_RHO_0}."
    if heads < FEWEST:
        has = "has" if heads == 1 else "have"
        return f"A correlation needs {FEWEST} heads or more; {count(heads, 'head')} {has} a ρ₀."
    return "Recall, or ρ₀, is the same in all heads at every N, so there is no correlation."


def describe_sink_heads(heads: Sequence[Row], n: int) -> str:
    """Ranges of the correlated quantities over heads (``explorer_heads`` at ``n``)."""
    rows = select_sink_points(heads)
    low, high = (pick(rows, key=lambda row: row["rho_0"]) for pick in (min, max))
    return (
        f"At N = {n}, ρ₀ of {count(len(rows), 'head')} ranges from {number(low['rho_0'])} to {number(high['rho_0'])}, "
        f"and Recall from {number(min(row['recall'] for row in rows))} to {number(max(row['recall'] for row in rows))}."
    )


def select_sink_points(heads: Sequence[Row]) -> list[Row]:
    """The heads that have both ρ_0 and Recall (``explorer_heads``)."""
    return drop_nulls(drop_nulls(heads, "rho_0"), "recall")
