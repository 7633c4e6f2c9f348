"""Findings on norms and similarity of value states, on weights by position, and on the sink."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import pi
from statistics import fmean, median

from reports.findings.listings import format_own_interval
from reports.findings.numbers import Row, count, count_share, drop_nulls, join_sentences, name_head, number, percent


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
    better = chosen["floor"] / (chosen.total() or 1)
    unfitted = [row for row in heads if row["mae"] is None]
    return join_sentences(
        f"The mean absolute error of the exponential is {_format_range(errors)} in {count(len(errors), 'KV head')}.",
        f"By BIC the fit with a floor is better in {count_share(better, chosen.total())} of them." if chosen else "",
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
        parts.append(f"β = {format_own_interval(model, 'beta')} with an error of {number(model['mae'])}")
    if model["floor"] is not None:
        at_once = model["beta_floor"] is None
        rate = "which is reached at once" if at_once else f"β = {format_own_interval(model, 'beta_floor')}"
        parts.append(
            f"with a floor of {format_own_interval(model, 'floor')}, {rate}, with an error of "
            f"{number(model['mae_floor'])}"
        )
    if model["rho_0"] is not None:
        spread = f"with a standard deviation of {number(model['rho_0_sd'])} over positions"
        parts.append(f"ρ₀ = {format_own_interval(model, 'rho_0')}, {spread}")
    if model["rho_0"] is not None and model["floor"] is not None:
        parts.append(
            "this cosine of all tokens with the sink’s direction alone gives a floor of about "
            f"ρ₀² = {number(model['rho_0'] ** 2)}"
        )
    status = "" if model["status"] == "ok" else f" (status '{model['status']}')"
    return f"For the whole model{status}: {'; '.join(parts)}." if parts else f"The whole model has no fit{status}."


VARIANTS = {
    "plateau": "a plateau alone",
    "growth": "a plateau and growth (T₁ = T₂)",
    "tied": "four phases with one η",
    "untied": "four phases with an η for each",
}
"""Variants of the four-phase fit, from the plainest to the richest."""


def describe_attention(weights: Sequence[Row], query: int) -> str:
    """Mean attention on the sink and on the query's own position (``attention_over_heads``)."""
    own = [row["mean"] for row in weights if row["last_position"] == query]
    itself = f"its own position ({query}) {percent(own[0])}" if own else "its own position none"
    sink = next((row for row in weights if row["first_position"] == 0), None)
    if sink is None:
        return f"No head sees position 0: a sliding window hides it from all. The query gives {itself}."
    heads = max(row["heads"] for row in weights)
    some = "" if sink["heads"] == heads else f" from the {count(sink['heads'], 'head')} of {heads} that see it"
    begins = [str(row["seen_from"]) for before, row in pairwise(weights) if row["heads"] > before["heads"]]
    return join_sentences(
        f"On average position 0 gets {percent(sink['mean'])} of the query’s attention{some}, and {itself}.",
        f"Sliding windows begin at position {', '.join(begins)}: the mean jumps there, since heads that see fewer keys "
        "give each more weight, and its fit takes that for growth."
        if begins
        else "",
    )


def describe_sink_by_layer(sinks: Sequence[Row]) -> str:
    """The layer and the head with the most attention on the sink (``sink_by_head``)."""
    rows = drop_nulls(sinks, "sink_weight")
    strongest = max(rows, key=lambda row: row["sink_weight"])
    finding = f"Position 0 has the largest weight in {name_head(strongest)}: {percent(strongest['sink_weight'])}"
    layers = {row["layer"]: fmean(r["sink_weight"] for r in rows if r["layer"] == row["layer"]) for row in rows}
    if len(layers) > 1:
        high = max(layers, key=layers.__getitem__)
        finding += f"; of the layers, it has most in layer {high}, {percent(layers[high])} on average"
    hidden = len(sinks) - len(rows)
    return f"{finding}. A sliding window hides position 0 from {count(hidden, 'head')}." if hidden else f"{finding}."


def describe_phases(fit: Row | None) -> str:
    """Parameters of the fit of the model's mean weight (``assumption_weights_model``)."""
    if fit is None:
        return ""
    if fit["variant"] is None:
        return f"The four phases have no fit (status '{fit['status']}')."
    shape = [f"{number(fit['p_base'])} per key on the plateau up to position {fit['t_1']}"]
    if fit["omega"] is not None:
        period = f"a period of {number(2 * pi / fit['omega'])} tokens" if fit["omega"] else "no period"
        shape.append(f"an oscillation of η = {number(fit['eta'])} with {period} up to {fit['t_2']}")
    if fit["eta_growth"] is not None:
        shape.append(f"growth by exp({number(fit['eta_growth'])}) per position after it")
    sink = (
        ""
        if fit["p_sink"] is None
        else f" The sink has {number(fit['p_sink'] / fit['p_base'])} times the plateau’s weight."
    )
    explained = "" if fit["r2_log"] is None else f"; R² = {number(fit['r2_log'])} for the log weight"
    return (
        f"By BIC {VARIANTS[fit['variant']]} describe{'s' if fit['variant'] in ('plateau', 'growth') else ''} the mean "
        f"best: {', '.join(shape)}{explained}.{sink}"
    )


def describe_weight_variants(heads: Sequence[Row]) -> str:
    """How many heads each variant describes best (``weights_fit_by_head``)."""
    numbers = Counter(row["variant"] for row in heads)
    parts = [f"{name} in {numbers[variant]}" for variant, name in VARIANTS.items() if numbers[variant]]
    chosen = f"Of {count(len(heads), 'head')}, BIC chooses {', '.join(parts)}." if parts else ""
    without = Counter(row["status"] for row in heads if row["variant"] is None)
    missing = ", ".join(f"{count(number_of, 'head')} '{status}'" for status, number_of in sorted(without.items()))
    return join_sentences(chosen, f"Without a fit: {missing}." if missing else "")


def describe_learned_sinks(sinks: Sequence[Row]) -> str:
    """Describe the attention that learned sinks take; empty if no head has one (``learned_sinks``)."""
    rows = [row for row in drop_nulls(sinks, "mean_learned_sink") if row["mean_learned_sink"] > 0]
    if not rows:
        return ""
    mean, have = fmean(row["mean_learned_sink"] for row in rows), "has" if len(rows) == 1 else "have"
    return (
        f"{len(rows):,} of {count(len(sinks), 'head')} {have} a learned sink, which is not a key and takes "
        f"{percent(mean)} of the attention on average; the weights of their keys sum to the rest."
    )
