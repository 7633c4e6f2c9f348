"""The kinds of heads: over depth, head by head, why they are what they are, and how well they separate."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import altair as alt
import pyarrow as pa

from reports import words
from reports.charts.elements import ABOVE, head_grid, layer_axis, layered, layers_to_last, n_axis, points
from reports.charts.labels import (
    LETTERED,
    dots,
    label_colour,
    label_dash,
    label_shape,
    pale_unless_fit,
    segments,
    stacked,
)
from reports.words import Row

VERDICT = ["layer", "head", "label", "fits_rule", "margin", "agreement"]
VERDICT += [f"{label.lower()}_score" for label in words.LABELS]
"""Columns of ``taxonomy_of_heads`` that say which kind a head is, and how surely."""

SIGNATURE = ["layer", "head", "label", "fits_rule", "cos_last_level", "cos_last_change", "cos_sink_change"]
SIGNATURE += ["sink_share", "last_share", "rest_share", "spread"]
"""Columns of ``taxonomy_of_heads`` that say why."""

SMALL = 12
"""Area of the shape in a cell that has no room for a letter, in square pixels."""

_HEAD = [
    alt.Tooltip("layer:O", title="Layer"),
    alt.Tooltip("head:O", title="Head"),
    alt.Tooltip("label:N", title="Kind"),
]


def kinds_by_layer(shares: pa.Table, heads: pa.Table) -> alt.LayerChart:
    """Share of each kind of head, layer by layer (Figure 8); those that fit no rule are pale.

    Parameters
    ----------
    shares
        ``taxonomy_by_layer``: layer, label, heads, share (from 0 to 1).
    heads
        ``taxonomy_of_heads``: layer, label, fits_rule, for the description and for what is pale.
    """
    tooltip = [
        alt.Tooltip("layer:O", title="Layer"),
        alt.Tooltip("label:N", title="Kind"),
        alt.Tooltip("fits_rule:N", title="Fits the rule"),
        alt.Tooltip("heads:Q", title="Heads", format=",d"),
        alt.Tooltip("share:Q", title="Share of the layer", format=".3~p"),
    ]
    found = heads.to_pylist()
    x = layer_axis(found)
    return layered(
        stacked(_by_fit(shares.to_pylist(), found), "layer"),
        "Kinds of heads over depth",
        f"Stacked bars of the share of each kind of head by layer. {words.depths(found)}",
        *segments(x, tooltip, pale=True),
    )


def _by_fit(shares: Sequence[Row], heads: Sequence[Row]) -> list[Row]:
    """Each share of a kind in two: of the heads that fit its rule, and of those that do not; those with heads."""
    fitting = Counter((row["layer"], row["label"]) for row in heads if row["fits_rule"])
    parts = []
    for row in shares:
        fits = fitting[row["layer"], row["label"]]
        of_each = {True: fits, False: row["heads"] - fits}
        parts += [
            {**row, "fits_rule": fit, "heads": number, "share": row["share"] * number / row["heads"]}
            for fit, number in of_each.items()
            if number
        ]
    return parts


def kinds_map(heads: pa.Table) -> alt.LayerChart:
    """The kind of every head, layers by heads; those that fit no rule are pale.

    Parameters
    ----------
    heads
        ``taxonomy_of_heads``: layer, head, label, fits_rule, margin, agreement (share of sequences), and the scores.
    """
    rows = [{**row, "letter": words.LETTERS[row["label"]]} for row in heads.select(VERDICT).to_pylist()]
    base, height = head_grid(rows)
    lettered = len({row["head"] for row in rows}) <= LETTERED
    color = label_colour(symbol="square", letters=lettered)
    size = min(11, height // len(layers_to_last(rows)) - 2)
    letters, shapes = base.encode(text="letter:N"), base.encode(shape=label_shape())
    signs = [
        (
            letters.mark_text(style=style, fontSize=size)
            if lettered
            else shapes.mark_point(style=style, filled=True, size=SMALL)
        ).transform_filter(which)
        for style, which in (("on-large", "datum.fits_rule"), ("on-small", "!datum.fits_rule"))
    ]
    return layered(
        rows,
        "Kind of every head",
        f"Map of the kind of every head, layers by heads. {words.kinds(heads.to_pylist())}",
        pale_unless_fit(base.mark_rect().encode(color=color, tooltip=[*_HEAD, *_scores()])),
        *signs,
    ).properties(height=height)


def _scores() -> list[alt.Tooltip]:
    """How surely a head is what it is."""
    scores = {f"{label.lower()}_score": f"Score as {label}" for label in words.LABELS}
    numbers = {"margin": "Leads by"} | scores
    return [
        alt.Tooltip("fits_rule:N", title="Fits the rule"),
        *(alt.Tooltip(f"{column}:Q", title=title, format=".3~f") for column, title in numbers.items()),
        alt.Tooltip("agreement:Q", title="Sequences that agree", format=".3~p"),
    ]


def kinds_plane(heads: pa.Table, thresholds: pa.Table) -> alt.LayerChart:
    """Every head by level and change of cos(s_N, v_L), with the thresholds of the three rules.

    Parameters
    ----------
    heads
        ``taxonomy_of_heads``: layer, head, label, fits_rule, cos_last_level, cos_last_change (of a cosine; heads
        without one are left out) and the shares.
    thresholds
        ``taxonomy_thresholds``: threshold, value.
    """
    rows = words.known(heads.select(SIGNATURE).to_pylist(), "cos_last_level")
    values = {row["threshold"]: row["value"] for row in thresholds.to_pylist()}
    (left, right), (low, high) = _extents(rows, values)
    x = partial(alt.X, title="Change of cos(s, v_L) over all N", scale=alt.Scale(domain=[left, right]))
    y = partial(alt.Y, title="Level of cos(s, v_L), mean over ln N", scale=alt.Scale(domain=[low, high]))
    marks = [
        dots(rows, filled=filled)
        .encode(
            x=x("cos_last_change:Q"),
            y=y("cos_last_level:Q"),
            color=label_colour(symbol="circle"),
            shape=label_shape(),
            tooltip=[*_HEAD, *_signature()],
        )
        .transform_filter(which)
        for filled, which in ((False, "!datum.fits_rule"), (True, "datum.fits_rule"))
    ]
    return layered(
        rows,
        "Heads beside the thresholds",
        f"Dot plot of the level of cos(s, v_L) against its change, one mark for each head. {words.planes(rows)}",
        *_borders(values, left, right, high),
        *marks,
    )


def _extents(rows: Sequence[Row], values: Mapping[str, float]) -> list[tuple[float, float]]:
    """What both axes span: all heads and all thresholds."""
    changes = [row["cos_last_change"] for row in rows] + [0, values["last_rises"]]
    levels = [row["cos_last_level"] for row in rows] + [values["last_high"], values["last_weak"]]
    return [(min(found) - 0.08, max(found) + 0.08) for found in (changes, levels)]


def _borders(values: Mapping[str, float], left: float, right: float, high: float) -> list[alt.Chart]:
    """Where each rule ends as far as cos(s, v_L) goes: a wedge for Retrievers, a rule each for the others."""
    peak = values["last_high"]
    room = max(0, min(right, 2 * (high - peak) - 0.2))  # as far as the wedge is low enough for its name
    wedge, place = ([{"x": x, "y": peak + abs(x) / 2} for x in found] for found in ((left, 0, right), (room,)))
    weak, rises = [{"x": left, "y": values["last_weak"]}], [{"x": values["last_rises"]}]
    retriever, named, reset, mixer = (alt.Chart(alt.InlineData(values=data)) for data in (wedge, place, weak, rises))
    retriever, named, reset = (chart.encode(x="x:Q", y="y:Q") for chart in (retriever, named, reset))
    mixer = mixer.encode(x="x:Q")
    return [
        retriever.mark_line(style="reference", clip=True),
        reset.encode(x=alt.value(0), x2=alt.value("width")).mark_rule(style="reference"),
        mixer.mark_rule(style="reference"),
        _name(named, "Retriever: above", align="right", baseline="bottom", dx=-5, dy=-7),
        _name(reset, "Reset: below", align="left", baseline="top", dx=5, dy=5),
        _name(mixer.encode(y=alt.value(0)), "Mixer: right of it", align="left", baseline="bottom", dx=0, dy=ABOVE),
    ]


def _name(
    place: alt.Chart,
    name: str,
    *,
    align: Literal["left", "right"],
    baseline: Literal["top", "bottom"],
    dx: int,
    dy: int,
) -> alt.Chart:
    """The name of a border beside a place on it."""
    text = place.mark_text(style="reference-label", align=align, baseline=baseline, dx=dx, dy=dy)
    named: alt.Chart = text.encode(text=alt.value(name))
    return named


def _signature() -> list[alt.Tooltip]:
    """What the taxonomy looks at in a head."""
    cosines = {
        "cos_last_level": "Level of cos(s, v_L)",
        "cos_last_change": "its change",
        "cos_sink_change": "Change of cos(s, v₀)",
    }
    shares = {
        "sink_share": "Share of the sink",
        "last_share": "of the last token",
        "rest_share": "of the rest",
        "spread": "Spread",
    }
    return [
        alt.Tooltip("fits_rule:N", title="Fits the rule"),
        *(alt.Tooltip(f"{column}:Q", title=title, format=".3~f") for column, title in (cosines | shares).items()),
    ]


def kind_curves(curves: pa.Table, *, metric: str) -> alt.LayerChart:
    """Precision or Recall against N, mean and spread over the heads of each kind (Figure 11).

    Parameters
    ----------
    curves
        ``curves_by_label``: label, metric, n, heads, mean, p10, p90 (ratios from 0 to 1).
    metric
        ``precision`` or ``recall``.
    """
    rows = [row for row in curves.to_pylist() if row["metric"] == metric]
    last = max(row["n"] for row in rows)
    y = partial(alt.Y, title=f"{words.NAMES[metric]} (ratio)", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart().encode(x=n_axis(last), color=label_colour())
    tooltip = [
        alt.Tooltip("label:N", title="Kind"),
        alt.Tooltip("n:Q", title="N", format=",d"),
        alt.Tooltip("mean:Q", title=f"Mean {words.NAMES[metric]}", format=".3~f"),
        alt.Tooltip("p10:Q", title="10 % of heads below", format=".3~f"),
        alt.Tooltip("p90:Q", title="10 % of heads above", format=".3~f"),
        alt.Tooltip("heads:Q", title="Heads", format=",d"),
    ]
    return layered(
        rows,
        f"{words.NAMES[metric]} by kind of head",
        f"Line chart against N on a log axis, one line for each kind. {words.kind_curve(curves.to_pylist(), metric)}",
        base.mark_area().encode(y=y("p10:Q"), y2="p90:Q"),
        base.mark_line().encode(y=y("mean:Q"), strokeDash=label_dash()),
        points(base.encode(y=y("mean:Q"), tooltip=tooltip), always=last == 1),
    )
