"""Findings on the correlation of Recall with the sink's similarity over all heads, which is shown and not judged."""

from collections.abc import Sequence

from reports.findings.listings import format_own_interval
from reports.findings.numbers import Row, count, describe_range, drop_nulls

FEWEST = 3
"""A correlation over fewer heads than this is −1 or 1 for any values."""

NO_RHO_0 = "a sliding window hides the sink, or its value state or all others have norm 0"
"""Why a head that attends to two keys or more has no ρ_0."""

PAPERS_PEAK = 3
"""N at which the paper finds the correlation highest."""


def select_shown(curve: Sequence[Row]) -> Row:
    """The row at the paper's peak, or at the nearest N that has a correlation (``sink_effect``)."""
    return min(drop_nulls(curve, "correlation"), key=lambda row: abs(row["n"] - PAPERS_PEAK))


def describe_sink_effect(curve: Sequence[Row]) -> str:
    """The correlation at the paper's peak, and at the last N (``sink_effect``)."""
    shown, last = select_shown(curve), drop_nulls(curve, "correlation")[-1]
    text = (
        f"Over all {count(shown['heads'], 'head')}, the correlation of mean Recall and ρ₀ is "
        f"{format_own_interval(shown, 'correlation')} at N = {shown['n']:,}"
        f"{', where the paper finds its peak' if shown['n'] == PAPERS_PEAK else ''}"
    )
    return (
        f"{text}." if last is shown else f"{text}, and {format_own_interval(last, 'correlation')} at N = {last['n']:,}."
    )


def describe_sink_effects(curves: Sequence[Row]) -> str:
    """The correlation of each study at the paper's peak (``sink_effect`` with the column study)."""
    shown = {
        study: select_shown([row for row in curves if row["study"] == study])
        for study in dict.fromkeys(row["study"] for row in drop_nulls(curves, "correlation"))
    }
    clauses = [f"{study} {format_own_interval(row, 'correlation')} at N = {row['n']:,}" for study, row in shown.items()]
    return f"Correlation over all heads: {'; '.join(clauses)}." if clauses else ""


def explain_no_sink_effect(curve: Sequence[Row]) -> str:
    """Explain why no N has a correlation (``sink_effect``, with at least one row)."""
    heads = max(row["heads"] for row in curve)
    if not heads:
        return f"No head has a ρ₀: {NO_RHO_0}."
    if heads < FEWEST:
        has = "has" if heads == 1 else "have"
        return f"A correlation needs {FEWEST} heads or more; {count(heads, 'head')} {has} a ρ₀."
    return "Recall, or ρ₀, is the same in all heads at every N, so there is no correlation."


def describe_sink_heads(heads: Sequence[Row], n: int) -> str:
    """Ranges of the correlated quantities over heads (``sink_heads`` at ``n``)."""
    rows = select_sink_points(heads)
    return (
        f"At N = {n}, ρ₀ of {count(len(rows), 'head')} is {describe_range(rows, 'rho_0')}, and Recall "
        f"{describe_range(rows, 'recall')}."
    )


def select_sink_points(heads: Sequence[Row]) -> list[Row]:
    """The heads that have both ρ_0 and Recall (``sink_heads``)."""
    return drop_nulls(drop_nulls(heads, "rho_0"), "recall")
