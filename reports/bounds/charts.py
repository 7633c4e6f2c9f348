"""Charts of the bounds: coverage and width, Δ/B, and gaps for heads drawn from the assumptions."""

from collections.abc import Sequence
from functools import partial
from math import ceil, floor, inf, log10
from typing import Any

import altair as alt

from reports.bounds import findings
from reports.elements import draw_dotted_lines, layer_chart, level, log_axis, n_axis, points, rule_at, tooltips
from reports.findings import numbers
from reports.findings.numbers import Row

DECADES = 6
"""Largest number of powers of ten on either side of a scale of both signs."""

NEAR, STEPS = 0.2, 4
"""Names that begin within this share of the axis are staggered in this number of steps."""

COVERAGES = {
    "precision_coverage": "Precision, all rows",
    "recall_coverage": "Recall, all rows",
    "precision_coverage_premise": "Precision, rows with Δ > 0",
    "recall_coverage_premise": "Recall, rows with Δ > 0",
}
WIDTHS = {"precision_width": "Precision", "recall_width": "Recall"}


def coverage(kappas: Sequence[Row]) -> alt.LayerChart:
    """Share of (head, N) whose mean lies within the printed envelope, against κ (``coverage``)."""
    title, rows = "Coverage of the envelope against κ", kappas
    shares = [row["premise_share"] for row in numbers.drop_nulls(findings.select_printed(rows), "premise_share")]
    premise = [level(shares[0], "Δ > 0")] if shares else []
    return _draw_by_kappa(
        kappas, COVERAGES, title, "Coverage (share of rows)", findings.describe_coverage(rows), *premise
    )


def width(kappas: Sequence[Row]) -> alt.LayerChart:
    """Mean width of the printed envelope against κ (``coverage``)."""
    title = "Width of the envelope against κ"
    return _draw_by_kappa(kappas, WIDTHS, title, "Upper minus lower bound (ratio)", findings.describe_width(kappas))


def _draw_by_kappa(
    kappas: Sequence[Row], lines: dict[str, str], title: str, y_title: str, finding: str, *others: alt.LayerChart
) -> alt.LayerChart:
    """Quantities between 0 and 1 against κ on a log axis, the κ that serves best marked."""
    rows = findings.select_printed(kappas)
    drawn = {column: name for column, name in lines.items() if numbers.drop_nulls(rows, column)}
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


def margins(rows: Sequence[Row], regimes: Sequence[Row]) -> alt.LayerChart:
    """Δ/B against N, mean over heads, with the regimes (Table 2; ``bounds_by_n``, ``regimes_of_model``)."""
    last = max(row["n"] for row in rows)
    x = n_axis(last)
    y = alt.Y("margin:Q", title="Δ/B, mean over heads (symlog)", **_make_symlog_axis(rows))
    zero = alt.Chart(alt.InlineData(values=[{"margin": 0}])).mark_rule(style="reference").encode(y=alt.Y("margin:Q"))
    tooltip = [*tooltips(".3~g", n="N", margin="Δ/B"), *tooltips(".3~p", premise_share="Share with Δ > 0")]
    line = alt.Chart().encode(x=x, y=y)
    return layer_chart(
        rows,
        "Δ/B against N",
        f"Line chart against N on a log axis. {findings.describe_margins(rows)}",
        zero,
        *_mark_regimes(regimes, last),
        line.mark_line(style="mean"),
        points(line.encode(tooltip=tooltip), always=len(numbers.drop_nulls(rows, "margin")) == 1),
    )


def _mark_regimes(regimes: Sequence[Row], last: int) -> list[alt.LayerChart]:
    """Mark where regimes begin, with their names; those that begin together share a rule, close ones are staggered."""
    names: dict[int, list[str]] = {}
    for row in numbers.drop_nulls(regimes, "first_n"):
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
    sizes = [abs(row["margin"]) for row in numbers.drop_nulls(rows, "margin") if row["margin"]] or [1.0]
    low, high = floor(log10(min(sizes))), ceil(log10(max(sizes)))
    low = max(low, high - DECADES)
    powers = range(low, high + 1, max(1, ceil((high - low) / 4)))
    ends = [float(f"{row['margin']:.6g}") for row in numbers.drop_nulls(rows, "margin")]
    ticks = [0.0, *(sign * 10.0**power for power in powers for sign in (-1, 1))]
    inside = sorted(tick for tick in ticks if min(0.0, *ends) * 1.5 <= tick <= max(0.0, *ends) * 1.5 or not tick)
    scale = alt.Scale(
        type="symlog", constant=10.0**low, nice=False, domain=[min(inside[0], *ends), max(inside[-1], *ends)]
    )
    return {"scale": scale, "axis": alt.Axis(values=inside, format=".1~g")}


def gaps(grid: Sequence[Row], *, metric: str, title: str) -> alt.LayerChart:
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
