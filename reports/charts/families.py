"""Charts of a family of studies: quantities over its members, by layer and by head, and verdicts on claims."""

from collections.abc import Sequence

import altair as alt
import pyarrow as pa

from reports.charts.elements import head_grid, layer_chart, list_layers
from reports.charts.labels import segments, stack_shares
from reports.findings import families as findings
from reports.findings.claims import VERDICTS
from reports.findings.numbers import Row, drop_nulls

KINDS = {"Retriever": "retriever_share", "Mixer": "mixer_share", "Reset": "reset_share", "Other": "other_share"}
"""Quantities of the shares of kinds."""


def member_axis(rows: Sequence[Row]) -> alt.X:
    """Members in order, from left to right."""
    labels = [row["label"] for row in sorted(rows, key=lambda row: row["member"])]
    x = alt.X("label:O", sort=None, scale=alt.Scale(domain=list(dict.fromkeys(labels)))).title("Member")
    return x.axis(labelAngle=-40, labelOverlap=True, grid=False)


def trend(table: pa.Table, quantity: str) -> alt.LayerChart:
    """A quantity of the model over the members, with its interval.

    Parameters
    ----------
    table
        ``family_of_model``: label, member, quantity, value, value_low, value_high.
    quantity
        The quantity to draw.
    """
    rows = drop_nulls([row for row in table.to_pylist() if row["quantity"] == quantity], "value")
    title = findings.name_quantity(quantity)
    title = title[0].upper() + title[1:]
    base = alt.Chart().encode(x=member_axis(rows), tooltip=_list_tooltips())
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=True))
    return layer_chart(
        rows,
        title,
        f"Line chart of a quantity over the members of the family: {title}.",
        base.mark_rule(style="mean").encode(y=alt.Y("value_low:Q", title=title), y2=alt.Y2("value_high:Q")),
        base.mark_line(style="mean").encode(y=y),
        base.mark_point(filled=True, size=50, opacity=1).encode(y=y),
    )


def kinds(table: pa.Table) -> alt.LayerChart:
    """Share of each kind of head over the members (``family_of_model``)."""
    names = {quantity: label for label, quantity in KINDS.items()}
    rows = [row for row in table.to_pylist() if row["quantity"] in names and row["value"] is not None]
    given = [
        {"member": row["member"], "label": names[row["quantity"]], "name": row["label"], "share": row["value"]}
        for row in rows
    ]
    labels = list(dict.fromkeys(row["label"] for row in sorted(rows, key=lambda row: row["member"])))
    tooltip = [
        alt.Tooltip("name:N", title="Member"),
        alt.Tooltip("label:N", title="Kind"),
        alt.Tooltip("share:Q", title="Share of heads", format=".3~p"),
    ]
    x = alt.X("name:O", sort=None, scale=alt.Scale(domain=labels)).title("Member")
    return layer_chart(
        stack_shares(given, "member"),
        "Share of each kind of head",
        "Stacked bars of the share of each kind of head over the members of the family.",
        *segments(x.axis(labelAngle=-40, labelOverlap=True, grid=False), tooltip),
    )


def layers(table: pa.Table, title: str) -> alt.LayerChart:
    """A quantity of heads by layer and member: a map of layers by members (``family_layers``)."""
    rows: list[Row] = table.to_pylist()
    y = alt.Y("layer:O", scale=alt.Scale(domain=list_layers(rows))).title("Layer")
    colour = alt.Color("value:Q", title=None, scale=alt.Scale(domainMin=0))
    tooltip = [alt.Tooltip("layer:O", title="Layer"), *_list_tooltips()]
    return layer_chart(
        rows,
        title,
        f"Map of layers by members: {title}.",
        alt.Chart().mark_rect().encode(x=member_axis(rows), y=y, color=colour, tooltip=tooltip),
        height=max(120, 22 * len(list_layers(rows))),
    )


def heads(table: pa.Table, title: str) -> alt.LayerChart:
    """The map of heads of one member, which a slider chooses (``family_heads``)."""
    rows: list[Row] = table.to_pylist()
    members = sorted({row["member"] for row in rows})
    places = {member: place for place, member in enumerate(members)}
    base, height = head_grid(rows)
    slider = alt.param(
        name="member",
        value=len(members) - 1,
        bind=alt.binding_range(min=0, max=len(members) - 1, step=1, name="Member "),
    )
    colour = alt.Color(
        "value:Q", title=None, scale=alt.Scale(domain=[0, max(1.0, *(row["value"] or 0 for row in rows))])
    )
    tooltip = [alt.Tooltip("layer:O", title="Layer"), alt.Tooltip("head:O", title="Head"), *_list_tooltips()]
    cells = base.mark_rect().encode(color=colour, tooltip=tooltip).transform_filter("datum.place == member")
    chart = layer_chart(
        [{**row, "place": places[row["member"]]} for row in rows],
        title,
        f"Map of heads, layers by heads, of the member that the slider chooses: {title}.",
        cells,
        height=height,
    )
    return chart.add_params(slider)


def traces(table: pa.Table, title: str) -> alt.LayerChart:
    """A quantity of every head over the members; heads in which it appears are thicker (``family_heads``)."""
    rows = [{**row, "name": f"{row['layer']}.{row['head']}"} for row in drop_nulls(table.to_pylist(), "value")]
    base = alt.Chart().encode(
        x=member_axis(rows),
        y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=True)),
        detail="name:N",
        tooltip=[alt.Tooltip("name:N", title="Layer.head"), *_list_tooltips()],
    )
    ended = base.transform_filter(f"datum.appears && datum.member == {max(row['member'] for row in rows)}")
    return layer_chart(
        rows,
        title,
        f"A line for each head over the members: {title}.",
        base.mark_line(strokeWidth=0.6, opacity=0.35).transform_filter("!datum.appears"),
        base.mark_line(style="mean").transform_filter("datum.appears"),
        ended.mark_text(style="reference-label", align="left", dx=4).encode(text=alt.Text("name:N")),
    )


def verdicts(table: pa.Table) -> alt.LayerChart:
    """The verdict of every member on every claim, claims by members (``family_claims``)."""
    rows = [{**row, "sign": VERDICTS[row["verdict"]][0]} for row in table.to_pylist()]
    claims = sorted({row["claim"] for row in rows})
    base = alt.Chart().encode(
        x=member_axis(rows),
        y=alt.Y("claim:O", scale=alt.Scale(domain=claims)).title(None).axis(labelLimit=260),
        tooltip=[
            alt.Tooltip("statement:N", title="Claim"),
            alt.Tooltip("label:N", title="Member"),
            alt.Tooltip("verdict:N", title="Verdict"),
            alt.Tooltip("p_holm:Q", title="p after correction", format=".3~g"),
        ],
    )
    colour = alt.Color("verdict:N", title=None, scale=alt.Scale(domain=list(VERDICTS)), legend=alt.Legend(orient="top"))
    return layer_chart(
        rows,
        "Verdicts on the claims",
        "Map of claims by members; each cell has the sign of the verdict.",
        base.mark_rect(opacity=0.55).encode(color=colour),
        base.mark_text().encode(text="sign:N"),
        height=16 * len(claims),
    )


def _list_tooltips() -> list[alt.Tooltip]:
    """Member, value and interval of a row."""
    shown = {"value": "Value", "value_low": "95 % interval from", "value_high": "to"}
    numbers = [alt.Tooltip(f"{column}:Q", title=title, format=".3~f") for column, title in shown.items()]
    return [alt.Tooltip("label:N", title="Member"), *numbers]
