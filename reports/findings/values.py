"""Findings on norms and similarity of value states (Assumptions 1 and 2)."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from reports.findings.claims import format_interval
from reports.findings.numbers import Row, count, drop_nulls, join_sentences, number, percent


def describe_value_norm(norms: Sequence[Row]) -> str:
    """Value norm of the sink compared with the others (``value_norm_over_heads``)."""
    sink = [row["mean"] for row in norms if row["first_position"] == 0]
    others = [row for row in norms if row["first_position"] > 0]
    if not sink or not others:
        return "There is only one position, so there is nothing to compare."
    lengths = [row["last_position"] + 1 - row["first_position"] for row in others]
    later = sum(row["mean"] * length for row, length in zip(others, lengths, strict=True)) / sum(lengths)
    return f"The mean norm is {number(sink[0])} at position 0 and {number(later)} over the later positions."


def describe_norm_variation(heads: Sequence[Row]) -> str:
    """Both coefficients of variation (``norm_variation_by_head``)."""
    within, expected = (
        [row[column] for row in drop_nulls(heads, column)] for column in ("cv_within_sequence", "cv_of_expected_norm")
    )
    if not within:
        return "No KV head has two positions after the sink, so their norms have no variation."
    some = f"In the median of {count(len(within), 'KV head')}"
    beyond = (
        f"; extrapolated to infinitely many sequences, their mean varies by {percent(median(expected))}"
        if expected
        else ""
    )
    return f"{some}, norms vary over positions by {percent(median(within))} in one sequence{beyond}."


def _format_range(values: Sequence[float]) -> str:
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def describe_similarity_errors(heads: Sequence[Row]) -> str:
    """Error of the exponential, and how often a floor is preferred (``similarity_fit_by_head``)."""
    errors = [row["mae"] for row in drop_nulls(heads, "mae")]
    if not errors:
        return f"No KV head has a fit: {_count_statuses(heads)}."
    chosen = Counter(row["preferred"] for row in drop_nulls(heads, "preferred"))
    unfitted = [row for row in heads if row["mae"] is None]
    return join_sentences(
        f"The mean absolute error of the exponential is {_format_range(errors)} in {count(len(errors), 'KV head')}.",
        f"By BIC the fit with a floor is better in {chosen['floor']} of {chosen.total()}." if chosen else "",
        f"Without a fit: {_count_statuses(unfitted)}." if unfitted else "",
    )


def _count_statuses(rows: Sequence[Row]) -> str:
    numbers = Counter(row["status"] for row in rows)
    return ", ".join(f"{count(heads, 'KV head')} '{status}'" for status, heads in sorted(numbers.items()))


def describe_similarity_curve(curve: Sequence[Row], title: str) -> str:
    """Similarity against distance (``similarity_curves``, one KV head or the model)."""
    rows = sorted(drop_nulls(curve, "mean_cosine"), key=lambda row: row["distance"])
    if not rows:
        return f"{title}: no cosine is defined."
    first, last = rows[0], rows[-1]
    ends = f"{number(first['mean_cosine'])} at distance {first['distance']}"
    if first is last:
        return f"{title}: the mean cosine is {ends}."
    return f"{title}: the mean cosine is {ends} and {number(last['mean_cosine'])} at distance {last['distance']:,}."


def describe_model_similarity(model: Row | None) -> str:
    """β, floor and ρ_0 of the whole model (``assumption_similarity_model``)."""
    if model is None:
        return ""
    parts = []
    if model["beta"] is not None:
        parts.append(f"β = {_format_with_error(model, 'beta')} with an error of {number(model['mae'])}")
    if model["floor"] is not None:
        at_once = model["beta_floor"] is None
        rate = "which is reached at once" if at_once else f"β = {_format_with_error(model, 'beta_floor')}"
        parts.append(
            f"with a floor of {_format_with_error(model, 'floor')}, {rate}, with an error of "
            f"{number(model['mae_floor'])}"
        )
    if model["rho_0"] is not None:
        spread = f"with a standard deviation of {number(model['rho_0_sd'])} over positions"
        parts.append(f"ρ₀ = {_format_with_error(model, 'rho_0')}, {spread}")
    if model["rho_0"] is not None and model["floor"] is not None:
        parts.append(
            "this cosine of all tokens with the sink’s direction alone gives a floor of about "
            f"ρ₀² = {number(model['rho_0'] ** 2)}"
        )
    status = "" if model["status"] == "ok" else f" (status '{model['status']}')"
    return f"For the whole model{status}: {'; '.join(parts)}." if parts else f"The whole model has no fit{status}."


def _format_with_error(row: Row, column: str) -> str:
    """Format a parameter with its interval, if it has one."""
    return format_interval(row, column, low=f"{column}_low", high=f"{column}_high")
