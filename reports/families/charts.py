"""Charts of a family of studies: quantities over its members, by layer and by head, and verdicts on claims."""

import json
import textwrap
from collections.abc import Sequence
from typing import Literal

import altair as alt

from reports import theme
from reports.elements import (
    HEAD,
    INTERVAL,
    XValue,
    YValue,
    colour_bars,
    head_grid,
    layer_chart,
    level,
    list_layers,
    style_line,
    tooltips,
)
from reports.findings.claims import VERDICTS
from reports.findings.numbers import Row, drop_nulls
from reports.kinds.labels import segments, stack_shares

NAMES = {
    "loss": "loss, nats a token",
    "sink_weight": "attention on the sink",
    "top_previous": "top key is the previous position",
    "top_induction": "top key follows an earlier copy",
    "pattern_sink": "weight on the sink, all queries",
    "pattern_previous": "weight on the previous token",
    "pattern_local": "weight on the last eight keys",
    "pattern_duplicate": "weight on earlier copies",
    "pattern_induction": "weight on keys after earlier copies",
    "effective_keys": "effective keys",
    "recall[4]": "Recall at N = 4",
    "retriever_share": "Retriever",
    "mixer_share": "Mixer",
    "reset_share": "Reset",
    "other_share": "Other",
    "recall_over_random": "Recall beyond random keys",
    "recall_over_shuffled": "Recall beyond shuffled values",
    "auc_over_random": "AUC beyond random keys",
    "auc_over_shuffled": "AUC beyond shuffled values",
}
"""Quantities as pages name them."""


def name_quantity(quantity: str) -> str:
    """A quantity as pages name it."""
    return NAMES.get(quantity, quantity)


def title_quantity(quantity: str) -> str:
    """A quantity as the title of a figure."""
    name = name_quantity(quantity)
    return name[0].upper() + name[1:]


KINDS = {"Retriever": "retriever_share", "Mixer": "mixer_share", "Reset": "reset_share", "Other": "other_share"}
"""Quantities of the shares of kinds."""

BESIDE = {
    "_compared": "the model",
    "_of_random": "random keys",
    "_of_shuffled": "shuffled values",
    "_compared_of_twin": "random weights",
}
"""Lines of a measure beside chance, by the end of the quantity's name."""

POINTS = ("circle", "square", "triangle-up", "diamond")  # Shapes of these, where points stand alone
MOST_LABELS = 12  # Most members that are all named on the axis; of more some are left out

CLAIM_WIDTH, CLAIM_LINE, CLAIM_CELLS = 52, 13, 18
"""Letters in a line of a claim in the map of verdicts, and pixels of a line and of the cells below."""


NAME_HEIGHT, MOST_NAMES = 0.06, 8
"""Height of the name of a line as a share of the axis, and the largest number of named lines."""


def member_axis(rows: Sequence[Row], field: str = "label", *, orient: Literal["bottom", "top"] = "bottom") -> alt.X:
    """Members in order, from left to right, under the name of what they differ in, if there is such an axis."""
    labels = list(dict.fromkeys(row["label"] for row in sorted(rows, key=lambda row: row["member"])))
    axis = (rows[0].get("axis") if rows else None) or "study"
    title = axis[0].upper() + axis[1:].replace("_", " ")
    x = alt.X(f"{field}:O", sort=None, scale=alt.Scale(domain=labels)).title(title)
    return x.axis(labelAngle=-40, labelOverlap=len(labels) > MOST_LABELS, grid=False, orient=orient)


def trend(table: Sequence[Row], quantity: str, *, ordered: bool = True) -> alt.LayerChart:
    """A quantity over the members with its interval, a cross for one that lacks it (``family_of_model``).

    A line connects members that are ``ordered`` along an axis.
    """
    rows = [row for row in table if row["quantity"] == quantity]
    title = title_quantity(quantity)
    base = alt.Chart().encode(x=member_axis(rows), tooltip=_list_tooltips())
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=True))
    lines = [base.mark_line(style="mean").encode(y=y)] if ordered else []
    return layer_chart(
        rows,
        title,
        f"Chart of a quantity over the studies: {title}.",
        base.mark_rule(style="mean").encode(y=alt.Y("value_low:Q", title=None), y2=alt.Y2("value_high:Q")),
        *lines,
        base.mark_point(filled=True, size=50, opacity=1).encode(y=y),
        mark_missing(base, "value"),
        height=theme.PANEL_HEIGHT,
    )


def mark_missing(base: alt.Chart, column: str) -> alt.Chart:
    """A cross at the foot of the place of each member without a value."""
    marks: alt.Chart = base.transform_filter(f"!isValid(datum.{column})").mark_text(
        style="reference-label", text="×", baseline="bottom", fontSize=14
    )
    return marks.encode(y=YValue("height"))


def separation_and_chance(table: Sequence[Row], name: str, title: str, *, ordered: bool = True) -> alt.LayerChart:
    """Recall or AUC over the members beside chance and the twins of random weights (``family_of_model``)."""
    names = {name + end: label for end, label in BESIDE.items()}
    rows = [row for row in table if row["quantity"] in names]
    base = alt.Chart().encode(x=member_axis(rows), tooltip=_list_tooltips())
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=True))
    layers: list[alt.Chart] = []
    there = [label for quantity, label in names.items() if any(row["quantity"] == quantity for row in rows)]
    for quantity, label in names.items():
        own = base.transform_filter(f"datum.quantity == '{quantity}'")
        if label in there:
            spans = own.mark_rule().encode(y=alt.Y("value_low:Q"), y2=alt.Y2("value_high:Q"))
            if ordered:
                layers += (style_line(drawn, there, label) for drawn in (own.mark_line(point=True).encode(y=y), spans))
            else:
                points = own.mark_point(filled=True, size=60, opacity=1).encode(y=y)
                shapes = alt.Scale(domain=there, range=list(POINTS[: len(there)]))
                legend = alt.Legend(orient="top", columns=2, symbolSize=80)
                shape = alt.Shape("line:N", title=None, scale=shapes, legend=legend)
                layers += (_place_apart(spans, there, label), _place_apart(points, there, label).encode(shape=shape))
    return layer_chart(
        rows,
        title,
        f"Chart of {title} over the studies, beside random keys, shuffled value states and twins of random weights.",
        *layers,
        mark_missing(base.transform_filter(f"datum.quantity == '{name}_compared'"), "value"),
    )


def _place_apart(marks: alt.Chart, labels: Sequence[str], label: str) -> alt.Chart:
    """Marks of one of several labels: beside those of the others, in a colour of its own."""
    color = alt.Color("line:N", title=None, scale=alt.Scale(domain=list(labels)))
    aside = alt.XOffset("line:N", sort=list(labels), scale=alt.Scale(domain=list(labels)))
    named: alt.Chart = marks.transform_calculate(line=f"'{label}'").encode(color=color, xOffset=aside)
    return named


def kinds(table: Sequence[Row]) -> alt.LayerChart:
    """Share of each kind of head over the members (``family_of_model``)."""
    names = {quantity: label for label, quantity in KINDS.items()}
    rows = [row for row in table if row["quantity"] in names]
    given = [
        {"member": row["member"], "label": names[row["quantity"]], "name": row["label"], "share": row["value"]}
        for row in rows
        if row["value"] is not None
    ]
    tooltip = tooltips(".3~p", name="Study", label="Kind", share="Share of heads")
    x = member_axis(rows, "name")
    lacking = [{"name": label} for label in {row["label"] for row in rows} - {row["name"] for row in given}]
    return layer_chart(
        stack_shares(given, "member"),
        "Share of each kind of head",
        "Stacked bars of the share of each kind of head over the studies.",
        *segments(x, tooltip),
        mark_missing(alt.Chart(alt.InlineData(values=lacking)).encode(x=x), "label"),
    )


def layers(rows: Sequence[Row], title: str) -> alt.LayerChart:
    """A quantity of heads by layer and member: a map of layers by members (``family_layers``)."""
    there = list_layers([row for row in rows if row["layer"] is not None])
    y = alt.Y("layer:O", scale=alt.Scale(domain=there)).title("Layer")
    colour = alt.Color("value:Q", title=None, scale=alt.Scale(domainMin=0))
    tooltip = [HEAD[0], *_list_tooltips()]
    base = alt.Chart().encode(x=member_axis(rows), tooltip=tooltip)
    return layer_chart(
        rows,
        title,
        f"Map of layers by studies: {title}.",
        base.transform_filter("isValid(datum.layer)").mark_rect().encode(y=y, color=colour),
        mark_missing(base, "layer"),
        height=max(120, 22 * len(there)),
    )


def heads(table: Sequence[Row], title: str) -> alt.LayerChart:
    """The map of heads of one member, which a slider chooses (``family_heads``)."""
    rows = drop_nulls(table, "layer")
    members = sorted({row["member"] for row in rows})
    places = {member: place for place, member in enumerate(members)}
    base, height = head_grid(rows)
    slider = alt.param(
        name="member",
        value=len(members) - 1,
        bind=alt.binding_range(min=0, max=len(members) - 1, step=1, name="Study "),
    )
    colour = alt.Color(
        "value:Q", title=None, scale=alt.Scale(domain=[0, max(1.0, *(row["value"] or 0 for row in rows))])
    )
    tooltip = [*HEAD, *_list_tooltips()]
    shown = base.transform_filter("datum.place == member")
    first = min((row["layer"], row["head"]) for row in rows)
    named = shown.transform_filter(f"datum.layer == {first[0]} && datum.head == {first[1]}").mark_text(
        style="reference-label", align="right", baseline="bottom", dy=-4
    )
    chart = layer_chart(
        [{**row, "place": places[row["member"]]} for row in rows],
        title,
        f"Map of heads, layers by heads, of the study that the slider chooses: {title}.",
        shown.mark_rect().encode(color=colour, tooltip=tooltip),
        named.encode(x=XValue("width"), y=YValue(0), text=alt.Text("label:N")),
        height=height,
    )
    return chart.add_params(slider)


def traces(table: Sequence[Row], title: str, *, threshold: float | None = None) -> alt.LayerChart:
    """A quantity of every head over the studies (``family_heads``).

    Heads in which it comes to exceed ``threshold`` are blue, the largest with their names where these have room.
    """
    rows = [{**row, "name": f"{row['layer']}.{row['head']}"} for row in table]
    last = max(row["member"] for row in drop_nulls(rows, "value"))
    ended = [row for row in rows if row["member"] == last and row["appears"] and row["value"] is not None]
    apart = NAME_HEIGHT * max(row["value"] for row in drop_nulls(rows, "value"))
    chosen: list[Row] = []
    for row in sorted(ended, key=lambda row: -row["value"]):
        if not chosen or chosen[-1]["value"] - row["value"] >= apart:
            chosen.append(row)
    named = [row["name"] for row in chosen[:MOST_NAMES]]
    base = alt.Chart().encode(
        x=member_axis(rows),
        y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=True)),
        detail=alt.Detail("name:N"),
        tooltip=[*tooltips(name="Layer.head"), *_list_tooltips()],
    )
    names = base.transform_filter(f"datum.member == {last} && indexof({json.dumps(named)}, datum.name) >= 0")
    return layer_chart(
        rows,
        title,
        f"A line for each head over the studies: {title}.",
        *([level(threshold, f"{threshold:g}")] if threshold is not None else []),
        base.mark_line(style="outline", strokeWidth=1, opacity=0.45).transform_filter(
            "isValid(datum.value) && !datum.appears"
        ),
        *([base.mark_line(style="mean").transform_filter("datum.appears")] if ended else []),
        base.mark_point(filled=True, size=50, opacity=0).transform_filter("isValid(datum.value)"),
        *([names.mark_text(style="chosen-facts", align="left", dx=6).encode(text=alt.Text("name:N"))] if named else []),
        mark_missing(base.transform_filter("!isValid(datum.layer)"), "value"),
    )


def verdicts(table: Sequence[Row]) -> alt.LayerChart:
    """The verdict of every member on every claim, members under the words of the claim (``family_claims``)."""
    names = {verdict: f"{sign} {verdict}" for verdict, (sign, _) in VERDICTS.items()}
    rows = [{**row, "named": names.get(row["verdict"], "×")} for row in table]
    words = {row["claim"]: textwrap.wrap(row["statement"], CLAIM_WIDTH) for row in rows}
    above = CLAIM_LINE * max(len(lines) for lines in words.values()) + 4
    gap = above / (above + CLAIM_CELLS)
    y = alt.Y("claim:O", title=None, axis=None, scale=alt.Scale(domain=list(words), padding=gap))
    base = alt.Chart().encode(
        x=member_axis(rows, orient="top"),
        y=y,
        tooltip=tooltips(".3~g", statement="Claim", label="Study", verdict="Verdict", p_holm="p after correction"),
    )
    colour = colour_bars("named", [*names.values()], columns=2)
    claims = alt.Chart(alt.InlineData(values=[{"claim": claim, "words": lines} for claim, lines in words.items()]))
    raised = {"expr": f"-{CLAIM_LINE} * length(datum.words) - 3"}
    text = claims.mark_text(style="reference-label", align="left", baseline="top", lineHeight=CLAIM_LINE, dy=raised)
    return layer_chart(
        rows,
        "Verdicts on the claims",
        "Map of claims by studies; each cell has the sign of the verdict.",
        base.transform_filter("isValid(datum.verdict)").mark_rect(opacity=0.55).encode(color=colour),
        base.mark_text(style="ink").encode(text=alt.Text("sign:N")).transform_calculate(sign="datum.named[0]"),
        text.encode(x=XValue(0), y=y.bandPosition(0), text=alt.Text("words:N")),
        height=round((above + CLAIM_CELLS) * (len(words) + gap)),
    )


def _list_tooltips() -> list[alt.Tooltip]:
    interval = tooltips(".3~f", value="Value", **INTERVAL)
    return [*tooltips(label="Study"), *interval]
