"""Correlation of the sink’s similarity to other value states with Recall over heads (Figure 6), which is not judged."""

from collections.abc import Sequence
from functools import partial

import altair as alt

from reports.elements import HEAD, distinguish_lines, layer_chart, level, n_axis, points, tooltips
from reports.figures import NOTHING_SELECTED, Figure, Section, Source
from reports.findings.listings import format_own_interval
from reports.findings.numbers import Row, count, describe_range, drop_nulls
from reports.kinds.labels import add_nearest, dots

FEWEST = 3  # A correlation over fewer heads than this is −1 or 1 for any values

NO_RHO_0 = "a sliding window hides the sink, or its value state or all others have norm 0"
"""Why a head that attends to two keys or more has no ρ_0."""

PAPERS_PEAK = 3  # N at which the paper finds the correlation highest


def select_shown(curve: Sequence[Row]) -> Row:
    """The row at the paper's peak, or at the nearest N that has a correlation (``sink_effect``)."""
    return min(drop_nulls(curve, "correlation"), key=lambda row: abs(row["n"] - PAPERS_PEAK))


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


TITLE = "Correlation of Recall with ρ₀"

_y = partial(alt.Y, title="Correlation over heads (−1 to 1)", scale=alt.Scale(domain=[-1, 1]))


def draw_effects(curves: Sequence[Row]) -> alt.LayerChart:
    """The same correlation for several studies, a line each (Figure 6; ``sink_effect`` with the column study)."""
    rows: list[Row] = drop_nulls(curves, "correlation")
    studies = list(dict.fromkeys(row["study"] for row in rows))
    color, dash = distinguish_lines("study", studies)
    base = alt.Chart().encode(x=n_axis(max(row["n"] for row in rows)), color=color)
    return layer_chart(
        rows,
        TITLE,
        f"Line chart against N on a log axis, one line for each study. {describe_sink_effects(rows)}",
        level(0, ""),
        base.mark_area().encode(y=_y("correlation_low:Q"), y2=alt.Y2("correlation_high:Q")),
        base.mark_line().encode(y=_y("correlation:Q"), strokeDash=dash),
        points(_add_tooltip(base, *tooltips(study="Study")), always=len(rows) == len(studies)),
    )


def _add_tooltip(base: alt.Chart, *first: alt.Tooltip) -> alt.Chart:
    shown = {"correlation": "Correlation", "correlation_low": "95 % interval from", "correlation_high": "to"}
    lines = tooltips(".3~f", n="N", **shown, heads="Heads")
    return base.encode(y=_y("correlation:Q"), tooltip=[*first, *lines])


def _draw_heads(heads: Sequence[Row], n: int) -> alt.LayerChart:
    """Recall at one N against ρ_0, a dot for each head that has both: what Figure 6 correlates (``sink_heads``)."""
    rows = add_nearest(heads)
    x = (
        alt.X("rho_0:Q", scale=alt.Scale(zero=False, nice=True))
        .title("ρ₀, mean cosine with the sink")
        .axis(tickCount=4)
    )
    y = alt.Y("recall:Q", scale=alt.Scale(domain=[0, 1])).title(f"Recall at N = {n} (ratio)")
    tooltip = [*HEAD, *tooltips(".3~f", label="Kind", rho_0="ρ₀", recall=f"Recall at N = {n}")]
    return layer_chart(
        rows,
        f"Recall at N = {n} against ρ₀",
        f"Dot plot of Recall against ρ₀, one dot for each head. At N = {n}, ρ₀ of {count(len(rows), 'head')} is "
        f"{describe_range(rows, 'rho_0')}, and Recall {describe_range(rows, 'recall')}.",
        *dots(rows, x, y, tooltip),
    )


def build_section(source: Source) -> Section:
    """The sink effect."""
    return Section(
        "sink",
        "What the sink does",
        "If position 0, the sink, is selected, its value state v_0 is part of s_N. ρ_0, the sink’s "
        "similarity, is the mean cosine of v_0 with all other value states.",
        (_build_effect(source),),
    )


def _build_effect(source: Source) -> Figure:
    draft = Figure("sink-effect", "The sink’s similarity and Recall", source.ask_query("sink_effect"))
    if not drop_nulls(draft.rows, "correlation"):
        return draft.leave_empty(explain_no_sink_effect(draft.rows) if source.last_n else NOTHING_SELECTED)
    shown, known = select_shown(draft.rows), drop_nulls(draft.rows, "correlation")
    peak, last = shown["n"], known[-1]
    heads = drop_nulls(drop_nulls(source.ask_query("sink_heads", n=peak).rows(), "rho_0"), "recall")
    at_end = f", and {format_own_interval(last, 'correlation')} at N = {last['n']:,}"
    told = (
        f"Over all {count(shown['heads'], 'head')}, the correlation of mean Recall and ρ₀ is "
        f"{format_own_interval(shown, 'correlation')} at N = {peak:,}"
        f"{', where the paper finds its peak' if peak == PAPERS_PEAK else ''}{'' if last == shown else at_end}."
    )
    base = alt.Chart().encode(x=n_axis(max(row["n"] for row in draft.rows)))
    chart = layer_chart(
        draft.rows,
        TITLE,
        f"Line chart against N on a log axis. {told}",
        level(0, ""),
        base.mark_area(style="band").encode(y=_y("correlation_low:Q"), y2=alt.Y2("correlation_high:Q")),
        base.mark_line(style="mean").encode(y=_y("correlation:Q")),
        points(_add_tooltip(base), always=len(known) == 1),
    )
    return draft.show(
        told,
        "Line: Pearson correlation over all heads of Recall R(r_min, N) and ρ_0, each a mean over sequences. Depth "
        "moves both, so that random weights show it too: claims are judged within layers. Dots: the "
        "heads near the paper’s peak, N = 3, where it finds about 0.6 for Gemma-7B and Mistral-7B.",
        paper="Figure 6",
        marks="Band: 95 % interval over sequences. Hollow: heads that meet no rule, in the colour of the nearest kind.",
        charts=(chart, *([_draw_heads(heads, peak)] if heads else [])),
    )
