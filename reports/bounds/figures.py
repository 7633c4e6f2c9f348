"""Evaluation of the bounds: coverage and width, Tables 1 and 2, and the bounds in expectation."""

from collections.abc import Sequence
from functools import partial
from math import ceil, floor, inf, log10
from typing import Any

import altair as alt

from reports.bounds import findings
from reports.elements import draw_dotted_lines, layer_chart, level, log_axis, n_axis, points, rule_at, tooltips
from reports.figures import Figure, Section, Source, only_row
from reports.findings.numbers import NAMES, Row, count, drop_nulls, join_sentences, number
from reports.separation import figures as separation

DECADES = 6  # Largest number of powers of ten on either side of a scale of both signs
NEAR, STEPS = 0.2, 4  # Names that begin within this share of the axis are staggered in this number of steps

COVERAGES = {
    "precision_coverage": "Precision, all rows",
    "recall_coverage": "Recall, all rows",
    "precision_coverage_premise": "Precision, rows with Δ > 0",
    "recall_coverage_premise": "Recall, rows with Δ > 0",
}
WIDTHS = {"precision_width": "Precision", "recall_width": "Recall"}


def draw_by_kappa(
    kappas: Sequence[Row], lines: dict[str, str], title: str, y_title: str, finding: str, *others: alt.LayerChart
) -> alt.LayerChart:
    """Quantities between 0 and 1 against κ on a log axis, the κ that serves best marked."""
    rows = findings.select_printed(kappas)
    drawn = {column: name for column, name in lines.items() if drop_nulls(rows, column)}
    ticks = [row["kappa"] for row in rows]
    x = log_axis("kappa", "κ (log scale)", ticks, written=".4~g", thinned=False, padding=14)
    y = partial(alt.Y, title=y_title, scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart().encode(x=x, tooltip=[*tooltips(".4~g", kappa="κ"), *tooltips(".3~f", **drawn)])
    best = [
        rule_at("kappa", kappa, f"tightest: κ = {kappa:g}", align="right" if kappa == max(ticks) else "left")
        for kappa in (row["kappa"] for row in rows if row["serves_best"])
    ]
    description = f"Line chart against κ on a log axis. {finding}"
    return layer_chart(rows, title, description, *best, *others, *draw_dotted_lines(base, y, drawn))


def _mark_regimes(regimes: Sequence[Row], last: int) -> list[alt.LayerChart]:
    """Mark where regimes begin, with their names; those that begin together share a rule, close ones are staggered."""
    names: dict[int, list[str]] = {}
    for row in drop_nulls(regimes, "first_n"):
        names.setdefault(row["first_n"], []).append(row["regime"])
    marks, step, before = [], 0, -inf
    for n, named in sorted(names.items()):
        here = log10(n) / max(log10(last), 1e-9)
        step = (step + 1) % STEPS if here - before < NEAR else 0
        before = here
        marks.append(rule_at("n", n, ", ".join(named), beside=15 * step))
    return marks


def _make_symlog_axis(rows: Sequence[Row]) -> dict[str, Any]:
    """A scale that is a log on both sides of 0, with a linear middle as wide as the smallest value.

    Its ends have six digits as the rows, since the last digits of a mean depend on the order in which threads add.
    """
    sizes = [abs(row["margin"]) for row in drop_nulls(rows, "margin") if row["margin"]] or [1.0]
    low, high = floor(log10(min(sizes))), ceil(log10(max(sizes)))
    low = max(low, high - DECADES)
    powers = range(low, high + 1, max(1, ceil((high - low) / 4)))
    ends = [float(f"{row['margin']:.6g}") for row in drop_nulls(rows, "margin")]
    ticks = [0.0, *(sign * 10.0**power for power in powers for sign in (-1, 1))]
    inside = sorted(tick for tick in ticks if min(0.0, *ends) * 1.5 <= tick <= max(0.0, *ends) * 1.5 or not tick)
    scale = alt.Scale(
        type="symlog", constant=10.0**low, nice=False, domain=[min(inside[0], *ends), max(inside[-1], *ends)]
    )
    return {"scale": scale, "axis": alt.Axis(values=inside, format=".1~g")}


def draw_gaps(grid: Sequence[Row], *, metric: str, title: str) -> alt.LayerChart:
    """Mean minus lower bound at each point of the grid, by β and N (one family of ``monte_carlo_grid``)."""
    rows = findings.select_gap_points(grid, metric)
    order = list({row["decay"]: None for row in sorted(rows, key=lambda row: row["beta"])})
    sizes = sorted({row["n"] for row in rows})
    domain, legend = list(findings.VERDICTS), alt.Legend(orient="top", symbolType="circle", symbolSize=70)
    color = alt.Color("verdict:N", title=None, scale=alt.Scale(domain=domain), legend=legend)
    shape = alt.Shape("verdict:N", title=None, scale=alt.Scale(domain=domain, range=["circle", "cross"]))
    tooltip = [
        *tooltips(".4~g", head_dim="d", n_keys="Keys", n="N", decay="β", kappa="κ"),
        *tooltips(".3~g", gap="Mean minus bound", verdict="Inequality"),
    ]
    marks = alt.Chart().mark_point(filled=True, size=70, opacity=0.8)
    zero = alt.Chart(alt.InlineData(values=[{"gap": 0}])).mark_rule(style="reference").encode(y=alt.Y("gap:Q"))
    x = alt.X("decay:N", sort=order).title("β; within each, N from small to large").axis(labelAngle=0)
    y = alt.Y("gap:Q").title("Mean minus lower bound (ratio)")
    dots = marks.encode(x=x, xOffset=alt.XOffset("n:O", sort=sizes), y=y, color=color, shape=shape, tooltip=tooltip)
    return layer_chart(
        rows, title, f"Dot plot of mean minus lower bound by β. {findings.describe_gaps(rows, title)}", zero, dots
    )


NO_BOUNDS = "No selection both includes a key besides the sink and leaves one out, so there are no bounds."
NO_GRID = "This study has no Monte Carlo grid; attention-geometry run synthetic computes one."
NO_DRAWS = "The weights of this study have no fit to draw heads from."
_GAPS = {
    "printed": (
        "Each mark is a point of the grid, at each κ and scale: the minimum over λ and ρ₀ of mean minus lower bound. "
        "Crosses lie below 0 by more than three standard errors. Theorems 1 and 2 (equations 12 and 14)."
    ),
    "scale_free": (
        "As for the printed bounds, for the bound without κ. It is proved for independent directions (β = ∞, ρ₀ = 0) "
        "and shown for the others too. It is not from the paper."
    ),
    "correlated": (
        "As for the printed bounds, for a bound whose pairs account for the correlation exp(−β k): exact for Gaussian "
        "directions, which unit vectors approach as d grows, so its assumptions are never met exactly. It is not from "
        "the paper."
    ),
}
"""Notes of each family's figure."""


def build_bounds(source: Source) -> Section:
    """Every measure with its bounds, and their coverage and width against κ."""
    metrics = ("precision", "recall", "f_r_max", "f_r_min")
    return Section(
        "bounds",
        "Do the bounds hold?",
        "The theorems bound Precision and Recall if Δ > 0, that is, if the smallest selected weighted value state "
        "outweighs those left out. The paper gives no value for κ, the width of angles. Lying within bounds is not "
        "evidence by itself: an envelope as wide as the range covers everything.",
        (
            *(separation.build_bounded(source, metric) for metric in metrics),
            _build_coverage(source),
            _build_width(source),
        ),
        appendix=True,
    )


def build_analysis(source: Source) -> Section:
    """Tables 1 and 2, and the reason if there is no Monte Carlo grid."""
    summary = _build_summary(source)
    return Section(
        "parameters",
        "What moves the bounds",
        "The bounds rest on Δ/B, the margin Δ over the size B of all weighted value states. If Δ ≤ 0, the theorems "
        "imply nothing.",
        (_build_margins(source), _build_regimes(source), _build_effects(source), *([summary] if summary.empty else [])),
        appendix=True,
    )


def build_expectation(source: Source) -> Section:
    """Monte Carlo of the bounds; no figures if there is no grid (the section on parameters says so)."""
    summary = _build_summary(source)
    drawn = {row["family"] for row in source.ask_study("monte_carlo_summary").rows()}
    gaps = (_build_gaps(source, family) for family in findings.FAMILIES if family in drawn)
    return Section(
        "expectation",
        "The bounds in expectation",
        "Heads are drawn from Assumptions 1 to 3 over a grid of parameters: does the mean over draws lie between "
        "the means of its bounds, as the theorems require?",
        () if summary.empty else (summary, *gaps, _build_failures(source)),
        appendix=True,
    )


def _build_coverage(source: Source) -> Figure:
    draft = Figure("coverage", "Coverage of the envelope against κ", source.ask_query("coverage"))
    rows = draft.rows
    if not drop_nulls(findings.select_printed(rows), "precision_coverage"):
        return draft.leave_empty(NO_BOUNDS)
    told = findings.describe_coverage(rows)
    if not findings.has_variation(rows, COVERAGES):
        return draft.leave_empty(f"it hardly depends on κ. {told}")
    shares = [row["premise_share"] for row in drop_nulls(findings.select_printed(rows), "premise_share")]
    premise = [level(shares[0], "Δ > 0")] if shares else []
    return draft.show(
        told,
        "Rows with Δ > 0 are those with N > 1 where it holds in most sequences; at N = 1 Precision and Recall are 1 by "
        "definition. In Figure 5 of the paper the means of the model lie within the bounds at every N; it states "
        "neither κ nor the share of heads.",
        marks="Dashed, horizontal: share of selections of N > 1 with Δ > 0.",
        charts=(draw_by_kappa(rows, COVERAGES, draft.title, "Coverage (share of rows)", told, *premise),),
    )


def _build_width(source: Source) -> Figure:
    draft = Figure("width", "Width of the envelope against κ", source.ask_query("coverage"))
    rows = draft.rows
    if not drop_nulls(findings.select_printed(rows), "precision_width"):
        return draft.leave_empty(NO_BOUNDS)
    told = findings.describe_width(rows)
    if not findings.has_variation(rows, WIDTHS):
        return draft.leave_empty(f"it hardly depends on κ. {told}")
    return draft.show(
        told,
        "Mean over rows of the upper minus the lower bound. In Figure 5 of the paper the upper bounds are close at "
        "small and at large N, and the lower ones are conservative in between; it gives no width.",
        charts=(draw_by_kappa(rows, WIDTHS, draft.title, "Upper minus lower bound (ratio)", told),),
    )


def _build_effects(source: Source) -> Figure:
    draft = Figure(
        "parameter-effects", "Effect of each parameter on the lower bounds", source.ask_study("parameter_effects")
    )
    rows = draft.rows
    if not rows:
        return draft.leave_empty(
            "This study has no effects of parameters; they are computed on heads drawn from its fitted assumptions."
        )
    row, fit = rows[0], only_row(source.ask_query("assumption_weights_model"))
    oscillates = fit is None or fit["eta"] is not None  # the weights from which heads are drawn
    return draft.show(
        findings.describe_effects(rows),
        f"Mean over {count(row['draws'], 'head')} drawn from the assumptions as fitted to this study, at N = "
        f"{row['n']}, κ = {number(row['kappa'])} and scale ‘{row['scale']}’. If no N has Δ > 0, β and then d "
        "are raised until one has, since few parameters matter otherwise. One parameter goes from low to high; the "
        "others are fixed. The miss is the bound on 1 − Recall; its log shows how the bounds move if they are close "
        "to 0. For N and the profile of weights the paper states a mixed effect.",
        paper="Table 1",
        tab="Parameters",
        listing=findings.tabulate_effects(rows, oscillates=oscillates),
    )


def _build_regimes(source: Source) -> Figure:
    draft = Figure("regimes", "Regimes of the selection", source.ask_query("regimes_of_model"))
    rows, counts = draft.rows, source.ask_query("regime_counts").rows()
    if not rows and not counts:
        return draft.leave_empty(
            "The four phases have no fit to the model’s mean weights, so no key belongs to a phase."
        )
    return draft.show(
        findings.describe_regimes(rows, counts),
        "Keys are selected in order of mean weight. Regimes begin at N = 1, 2, m₁ (first peak of the oscillation), m₂ "
        "(first valley or key of the plateau) and m₃ (all but the rest of the plateau). Trend: sign of the slope of "
        "mean Δ/B over log N. In the paper Δ/B rises while only the tail is selected, and falls from the first peak "
        "on.",
        paper="Table 2",
        tab="Regimes",
        listing=findings.tabulate_regimes(rows, counts),
    )


def _build_margins(source: Source) -> Figure:
    draft = Figure("margins", "Δ/B against N", source.ask_shown("bounds_by_n"))
    printed = draft.select("family", "printed").select("metric", "precision")
    table = printed.table.select(["n", "margin", "premise_share"])
    rows = table.to_pylist()
    if not drop_nulls(rows, "margin"):
        return draft.leave_empty(NO_BOUNDS)
    told = findings.describe_margins(rows)
    last = max(row["n"] for row in rows)
    x = n_axis(last)
    y = alt.Y("margin:Q", title="Δ/B, mean over heads (symlog)", **_make_symlog_axis(rows))
    zero = alt.Chart(alt.InlineData(values=[{"margin": 0}])).mark_rule(style="reference").encode(y=alt.Y("margin:Q"))
    tooltip = [*tooltips(".3~g", n="N", margin="Δ/B"), *tooltips(".3~p", premise_share="Share with Δ > 0")]
    line = alt.Chart().encode(x=x, y=y)
    chart = layer_chart(
        rows,
        draft.title,
        f"Line chart against N on a log axis. {told}",
        zero,
        *_mark_regimes(source.ask_query("regimes_of_model").rows(), last),
        line.mark_line(style="mean"),
        points(line.encode(tooltip=tooltip), always=len(drop_nulls(rows, "margin")) == 1),
    )
    return draft.show(
        told,
        "Mean over heads and sequences; Δ keeps its sign (equation 8 of the paper).",
        part=table,
        marks="Dashed: 0, above which the theorems apply, and the first N of each regime of the selection.",
        tab="Δ/B against N",
        charts=(chart,),
        broad=True,
    )


def _build_summary(source: Source) -> Figure:
    draft = Figure("monte-carlo", "Where the inequalities hold", source.ask_study("monte_carlo_summary"))
    if not draft.rows:
        overview = only_row(source.ask_study("study_overview"))
        return draft.leave_empty(NO_DRAWS if overview and overview["grid_asked"] else NO_GRID)
    return draft.show(
        findings.describe_monte_carlo(draft.rows),
        "Share of the points with a bound at which each inequality holds; in brackets, the smallest mean minus lower "
        "bound, or upper bound minus mean. An inequality holds unless the mean over draws lies beyond the bound by "
        "more than three standard errors. Met: points that meet the family’s assumptions; for the printed bounds, "
        "Δ > 0 in every draw, as Theorems 1 and 2 require. Of draws: share of single draws on the right side of their "
        "bound. The paper shows no such test.",
        listing=findings.tabulate_monte_carlo(draft.rows),
        tab="Where they hold",
    )


def _build_failures(source: Source) -> Figure:
    draft = Figure("failures", "Inequalities that fail, and where worst", source.ask_study("monte_carlo_failures"))
    if not draft.rows:
        return draft.leave_empty("No inequality fails at any point of the grid.")
    return draft.show(
        findings.describe_failures(draft.rows),
        "One row per bound that fails at some point of the grid, with the point where it fails worst. Gap: mean minus "
        "lower bound, or upper bound minus mean; if it is below 0, the inequality fails by this amount. The paper "
        "prints its inequalities without such a test.",
        listing=findings.tabulate_failures(draft.rows),
        tab="Which fail",
    )


def _build_gaps(source: Source, family: str) -> Figure:
    name = findings.FAMILIES[family]
    draft = Figure(
        f"{family.replace('_', '-')}-gaps", f"Lower bounds in expectation, {name}", source.ask_study("monte_carlo_grid")
    )
    draft = draft.select("family", family)
    rows = draft.rows
    metrics = [metric for metric in ("precision", "recall") if drop_nulls(rows, f"{metric}_holds")]
    panels = {metric: f"{NAMES[metric]}, {name}" for metric in metrics}
    if not panels:
        return draft.leave_empty("No point of the grid has such a bound.")
    points = {metric: findings.select_gap_points(rows, metric) for metric in metrics}
    return draft.show(
        join_sentences(*(findings.describe_gaps(points[metric], panel) for metric, panel in panels.items())),
        _GAPS[family],
        charts=tuple(draw_gaps(rows, metric=metric, title=panel) for metric, panel in panels.items()),
        titled=True,
        tab=f"Gaps, {name}",
    )
