"""Planted parameters and what the fits recover, for studies whose tensors are drawn from the assumptions."""

from collections.abc import Iterator, Sequence
from math import isfinite
from statistics import median

import altair as alt
import pyarrow as pa

from reports import theme
from reports.elements import ENDS, HEAD, keep_columns, layer_chart, tooltips
from reports.figures import Figure, Section, Source
from reports.findings.listings import Listing, format_change, format_number
from reports.findings.numbers import Row, count, drop_nulls, number

PARAMETERS = {
    "C": "C",
    "lambda": "λ",
    "beta": "β",
    "rho_0": "ρ₀",
    "p_sink": "p_sink",
    "p_base": "p_base",
    "eta": "η, oscillation",
    "eta_growth": "η, growth",
    "omega": "ω",
    "T_1": "T₁",
    "T_2": "T₂",
}
"""Parameters of the assumptions, as the paper writes them."""

EXACT = 1e-6
"""An interval narrower than this share of the value is rounding: the parameter does not vary over sequences."""

SHOWN = ("layer", "head", "planted", "fitted", "low", "high")
"""Columns of ``planted_recovery`` that a chart needs; there may be thousands of rows."""

WORST = 5  # Number of rows of each parameter in the table of the figure; a large study would have thousands


def build_section(source: Source) -> Section:
    """What the fits find of planted parameters; no figure for a study without them."""
    return Section(
        "recovery",
        "What the fits recover",
        "This study is drawn, not measured: every parameter of its heads is known, and the fits above should "
        "recover it.",
        tuple(_build_figures(source)),
    )


def _build_figures(source: Source) -> Iterator[Figure]:
    answer = source.ask_query("planted_recovery")
    rows = answer.rows()
    if not rows:
        return
    of_parameter = {name: [row for row in rows if row["parameter"] == name] for name in PARAMETERS}
    compared = {name: found for name, some in of_parameter.items() if (found := select_compared(some))}
    worst = (
        row for found in compared.values() for row in sorted(found, key=lambda row: -abs(row["difference"]))[:WORST]
    )
    yield Figure(
        "planted-recovery",
        "Planted and fitted parameters",
        answer,
        describe_recovery(rows),
        "Each dot is one head, or KV head; on the dashed line both agree. The table below has the "
        f"{WORST} heads with the largest error of each parameter; its SQL returns all of them. The tensors of this "
        "study are drawn from Assumptions 1 to 3 with the planted parameters, so any difference is an error of the "
        "fits. The paper has no such test.",
        part=pa.Table.from_pylist([*worst], schema=answer.table.schema),
        whole=answer.table,
        charts=tuple(draw_parameter(found, PARAMETERS[name]) for name, found in compared.items()),
        listing=Listing(
            ("Parameter", "Heads fitted", "Planted from, to", "Median error", "Largest error", "Median half-width"),
            tuple(_tabulate_parameter(PARAMETERS[name], some) for name, some in of_parameter.items()),
        ),
    )


def select_compared(rows: Sequence[Row]) -> list[Row]:
    """Select rows whose parameter was fitted, and planted with a finite number (``planted_recovery``)."""
    return [row for row in drop_nulls(rows, "difference") if isfinite(row["planted"])]


def describe_recovery(rows: Sequence[Row]) -> str:
    """Number of planted parameters that were fitted, and of those within their intervals (``planted_recovery``)."""
    fitted = select_compared(rows)
    judged = [row for row in drop_nulls(fitted, "low") if row["high"] - row["low"] > EXACT * abs(row["fitted"])]
    near = sum(row["low"] <= row["planted"] <= row["high"] for row in judged)
    within = f"; {near} of {len(judged)} lie within their intervals, where 95 % are expected" if judged else ""
    return f"{len(fitted)} of {count(len(rows), 'planted parameter')} were fitted{within}."


def _tabulate_parameter(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    errors = [abs(row["difference"]) for row in select_compared(rows)]
    planted = [row["planted"] for row in rows]
    widths = [(row["high"] - row["low"]) / 2 for row in drop_nulls(rows, "low")]
    return (
        name,
        f"{len(errors)} of {len(rows)}",
        format_change(min(planted, default=None), max(planted, default=None)),
        format_number(median(errors) if errors else None),
        format_number(max(errors, default=None)),
        format_number(median(widths) if widths else None),
    )


def draw_parameter(compared: Sequence[Row], name: str) -> alt.LayerChart:
    """A fitted parameter against its planted value, with the diagonal where they agree (``select_compared``)."""
    ends = [value for row in compared for value in (row["planted"], row["fitted"])]
    errors = [abs(row["difference"]) for row in compared]
    scale = alt.Scale(zero=False, nice=True, domain=[min(ends), max(ends)] if min(ends) < max(ends) else alt.Undefined)
    x = alt.X("planted:Q", scale=scale).title("planted").axis(format=".4~g", tickCount=4)
    y = alt.Y("fitted:Q", scale=scale).title("fitted").axis(format=".4~g", tickCount=4)
    diagonal = alt.Chart(alt.InlineData(values=[{"planted": end, "fitted": end} for end in (min(ends), max(ends))]))
    tooltip = [*HEAD, *tooltips(".4~g", planted="Planted", fitted="Fitted"), *tooltips(".3~g", **ENDS)]
    return layer_chart(
        keep_columns(compared, *SHOWN),
        name,
        f"Scatter plot of the fitted against the planted {name}. The error of {name} has a median of "
        f"{number(median(errors))} over {count(len(errors), 'head')} and a maximum of {number(max(errors))}.",
        diagonal.mark_line(style="reference").encode(x=x, y=y),
        alt.Chart().mark_point(style="head", filled=True, size=40).encode(x=x, y=y, tooltip=tooltip),
        height=theme.PANEL_HEIGHT,
    )
