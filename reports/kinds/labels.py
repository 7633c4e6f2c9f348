"""Labels of heads as all charts show them: one colour, shape, dash and letter each, in one order.

Holds the channels that encode the column ``label`` (``findings.LABELS``), marks for heads, and stacked bars of shares,
so that a label looks the same on all charts. A head that meets no rule has the colour of the kind to which it is
nearest; marks of heads that meet a rule are filled, and the others are hollow, or faint as cells of a map.
"""

from collections.abc import Sequence
from functools import partial

import altair as alt

from reports.findings.numbers import Row
from reports.kinds import findings

SHAPES = dict(zip(findings.LABELS, ("triangle-up", "circle", "square", "cross"), strict=True))
DASHES = dict(zip(findings.LABELS, ([1, 0], [8, 4], [2, 4], [9, 3, 2, 3]), strict=True))

WRITTEN = {**findings.LETTERS, findings.OTHER: ""}
"""Letter of each kind in bars and cells; those that meet no rule, most of them, have none."""

MANY = 256
"""Number of heads above which marks are smaller."""

FAINT = 0.22
"""Opacity of a cell of a head that meets no rule."""

LEAST_LETTER = 0.06
"""Smallest share for which a segment of a stacked bar has room for its letter."""

LETTERED = 16
"""Largest number of bars for which segments have room for their letters."""


def add_nearest(rows: Sequence[Row]) -> list[Row]:
    """Rows with ``near``, a head's kind or else the nearest one, ``met``, whether it meets the rule, and ``letter``."""
    named = []
    for row in rows:
        met = row["label"] in findings.KINDS
        near = row["label"] if met else row.get("nearest") or findings.OTHER
        named.append(row | {"near": near, "met": met, "letter": WRITTEN[near] if met else ""})
    return named


def fill_cells(base: alt.Chart, *, letters: bool) -> alt.Chart:
    """Cells of a map in the colours of ``near``, faint where no rule is met."""
    faint = alt.OpacityValue(**alt.when("datum.met").then(alt.value(1)).otherwise(alt.value(FAINT)))
    cells: alt.Chart = base.mark_rect().encode(
        color=label_colour("near", symbol="square", letters=letters), opacity=faint
    )
    return cells


def label_colour(column: str = "label", *, symbol: str | None = None, letters: bool = False) -> alt.Color:
    """Colour by ``label``, or ``near``, whose legend has the kinds alone.

    The legend's symbol is a stroke if none is named; it has the ``letters`` of kinds for charts that write them.
    """
    names = {label: f"{letter}: {label}" if letter else label for label, letter in WRITTEN.items()}
    named = alt.Legend(
        orient="top",
        symbolType=symbol or alt.Undefined,
        symbolSize=120 if symbol else alt.Undefined,
        labelExpr=f"{names}[datum.value]" if letters else alt.Undefined,
    )
    if column == "near":
        named["values"] = list(findings.KINDS)
    scale = alt.Scale(domain=list(findings.LABELS))
    return alt.Color(f"{column}:N", title=None, scale=scale, legend=named)


def near_shape() -> alt.Shape:
    """Shape of a point by ``near``."""
    scale = alt.Scale(domain=list(findings.LABELS), range=list(SHAPES.values()))
    return alt.Shape("near:N", title=None, scale=scale, legend=alt.Legend(values=list(findings.KINDS)))


def dots(
    heads: Sequence[Row], x: alt.X, y: alt.Y, tooltip: list[alt.Tooltip], *, legend: bool = True
) -> list[alt.Chart]:
    """Marks of heads (``add_nearest``), sized by their number: those that meet no rule are hollow, below the others."""
    size = 60 if len(heads) <= MANY else 30
    colour, shape = label_colour("near", symbol="circle"), near_shape()
    if not legend:
        colour["legend"], shape["legend"] = None, None
    marks = (
        ("!datum.met", alt.Chart().mark_point(filled=False, size=size, strokeWidth=1, opacity=0.7)),
        ("datum.met", alt.Chart().mark_point(filled=True, size=1.5 * size, opacity=0.85)),
    )
    return [
        mark.encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip).transform_filter(which)
        for which, mark in marks
    ]


def label_dash() -> alt.StrokeDash:
    """Dashes of a line by ``label``."""
    scale = alt.Scale(domain=list(findings.LABELS), range=list(DASHES.values()))
    return alt.StrokeDash("label:N", title=None, scale=scale)


def stack_shares(rows: Sequence[Row], column: str) -> list[Row]:
    """Stack the shares of the kinds in the bars of a column: ``low``, ``high``, ``middle`` and the ``letter``.

    Heads that meet no rule have no segment: they are the room that is left.
    """
    segments, tops = [], dict.fromkeys((row[column] for row in rows), 0.0)
    lettered = len(tops) <= LETTERED
    of_kinds = [row for row in rows if row["label"] in findings.KINDS]
    for row in sorted(of_kinds, key=lambda row: findings.KINDS.index(row["label"])):
        low, tops[row[column]] = tops[row[column]], tops[row[column]] + row["share"]
        letter = WRITTEN[row["label"]] if lettered and row["share"] >= LEAST_LETTER else ""
        segments.append(
            {**row, "low": low, "high": low + row["share"], "middle": low + row["share"] / 2, "letter": letter}
        )
    return segments


def segments(x: alt.X, tooltip: list[alt.Tooltip]) -> list[alt.Chart]:
    """Bars of ``stack_shares`` rows with their letters."""
    y = partial(alt.Y, title="Share of heads", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart().encode(x=x)
    color = label_colour(symbol="square", letters=True)
    color["legend"]["values"] = list(findings.KINDS)
    bars = base.mark_bar(style="segment").encode(
        y=y("low:Q", axis=alt.Axis(format="%")), y2=alt.Y2("high:Q"), color=color, tooltip=tooltip
    )
    return [bars, base.mark_text(style="on-large").encode(y=y("middle:Q"), text=alt.Text("letter:N"))]
