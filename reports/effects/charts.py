"""Charts of effects: maps of the loss without each head, the loss against measures of heads and against keys kept."""

from collections.abc import Sequence
from functools import partial

import altair as alt

from reports import theme
from reports.effects import findings
from reports.elements import (
    ENDS,
    HEAD,
    head_grid,
    keep_columns,
    layer_chart,
    level,
    log_axis,
    log_ticks,
    style_line,
    tooltips,
    write_in_cells,
)
from reports.findings import numbers
from reports.findings.numbers import Row
from reports.kinds.labels import add_nearest, dots, fill_cells

NATS = 0.01
"""Losses below this are drawn on a linear scale, those above on a logarithmic one."""

WRITTEN_HEADS = 12
"""Largest number of heads per row for which a map has its values written in the cells."""

CONTROLS = ("random_budgets", "full_heads_random")
"""Random policies."""

REFERENCES = ("same_n", "same_n_mean", "mass")
"""Policies that others are compared with, in several charts."""

PANELS = {
    "What the rest’s weight goes to": ("same_n", "same_n_dropped", "same_n_mean", "same_n_mean_of_rest"),
    "Keys off the mean": ("same_n_mean", "off_mean", "off_mean_dropped", "off_mean_mean", "off_mean_mean_of_rest"),
    "Sink and recent keys always kept": (
        *("same_n_mean", "same_n_window", "same_n_window_mean", "off_mean_window", "off_mean_window_mean"),
    ),
    "Budgets by head": ("same_n", "elbow", "recall", "n_90", "error", "mass", "random_budgets"),
    "Budgets by share of weight": ("same_n", "same_n_mean", "mass", "mass_mean"),
    "Budgets by error": ("same_n", "same_n_mean", "error", "error_mean", "mass"),
    "Policies that know past statistics": (
        *("sink_recent", "full_heads_elbow", "full_heads_mass", "full_heads_random"),
    ),
}
"""The policies of each chart of losses, by its title."""


def loss_map(heads: Sequence[Row]) -> alt.LayerChart:
    """Increase of the loss without each head, layers by heads (``ablation_by_head``)."""
    return _draw_map(heads, "delta_loss", "Loss increase (nats)", findings.describe_ablation(heads), log=True)


def measure_map(heads: Sequence[Row], *, measure: str) -> alt.LayerChart:
    """A measure of every head, on the same grid."""
    name = findings.MEASURES[measure]
    return _draw_map(heads, measure, name, f"{name} of every head.", log=measure == "effective_keys")


def kind_map(heads: Sequence[Row]) -> alt.LayerChart:
    """The kind of every head, on the same grid."""
    rows = _select_rows(heads)
    base, height = head_grid(rows)
    return layer_chart(
        rows,
        "Kind of head",
        "Map of the kinds of heads, layers by heads.",
        fill_cells(base, letters=True).encode(tooltip=_make_tooltip()),
        base.mark_text(style="on-large").encode(text=alt.Text("letter:N")),
        height=height,
    )


def _draw_map(heads: Sequence[Row], column: str, title: str, says: str, *, log: bool) -> alt.LayerChart:
    """A heat map of one column; on a log scale from ``NATS`` on, or a linear one."""
    rows = _select_rows(heads, column)
    base, height = head_grid(rows)
    values = [row[column] for row in numbers.drop_nulls(rows, column)] or [0.0]
    reach, signed = max(map(abs, values)) or 1.0, column == "delta_loss"
    scale = alt.Scale(type="symlog", constant=NATS if signed else 1) if log else alt.Scale(zero=True)
    if signed:
        scale["domain"], scale["range"] = [-reach, reach], "diverging"
    elif log:
        scale["domain"] = [0, reach]  # whose ticks the colour bar has
    legend = alt.Legend(format=".3~g", gradientLength=height)
    if log:
        legend["values"] = _list_ticks(reach, NATS if signed else 1, signed=signed)
    cells = base.mark_rect().encode(color=alt.Color(f"{column}:Q", title=None, scale=scale, legend=legend))
    written = len({row["head"] for row in rows}) <= WRITTEN_HEADS
    middle = reach * (0.1 if log else 0.5)
    text = alt.Text(f"{column}:Q", format=".3~g" if column == "effective_keys" else ".2~f")
    texts = write_in_cells(base, text, f"isValid(datum.{column}) && abs(datum.{column})", middle)
    described = f"Heat map, layers by heads. {says}"
    return layer_chart(
        rows, title, described, cells.encode(tooltip=_make_tooltip()), *(texts if written else []), height=height
    )


def _list_ticks(reach: float, constant: float, *, signed: bool) -> list[float]:
    """Labels of a colour bar on a symmetric log scale, a factor of 10 apart: those of equal steps would touch."""
    ticks = [constant * 10**power for power in range(12) if constant * 10**power <= reach]
    return [*(-tick for tick in reversed(ticks) if signed), 0.0, *ticks]


SHOWN = {
    "delta_loss": "Loss increase without the head",
    **ENDS,
    "kl": "KL",
    "recall": "Recall",
    "effective_keys": "Effective keys",
}
"""Columns of the tooltip of a head besides its place and kind, with their names."""


def _select_rows(heads: Sequence[Row], *columns: str) -> list[Row]:
    """Select the columns of the tooltip and some others: a page holds the rows of every chart."""
    return add_nearest(keep_columns(heads, "layer", "head", "label", "nearest", *SHOWN, *columns))


def _make_tooltip(**shown: str) -> list[alt.Tooltip]:
    return [*HEAD, *tooltips(".3~g", label="Kind", **SHOWN | shown)]


def loss_scatter(heads: Sequence[Row], *, measure: str, correlation: Row) -> alt.LayerChart:
    """Increase of the loss against one measure, a dot for each head that has it (``ablation_by_head``).

    ``correlation`` is its row of ``loss_associations``; of its kind ``selected``, the loss is that of keeping 16 keys.
    """
    loss = "delta_loss_selected" if correlation["kind"] == "selected" else "delta_loss"
    rows = numbers.drop_nulls(numbers.drop_nulls(_select_rows(heads, measure, loss), measure), loss)
    name = findings.MEASURES[measure]
    log = measure in {"effective_keys", "elbow"}
    scale = alt.Scale(type="log", nice=False, padding=6) if log else alt.Scale(zero=False, padding=6)
    x = alt.X(f"{measure}:Q", scale=scale)
    y = alt.Y(f"{loss}:Q", title="Loss increase (nats)", scale=alt.Scale(type="symlog", constant=NATS))
    tooltip = _make_tooltip(**{measure: name} | ({} if loss == "delta_loss" else {loss: "Loss increase with 16 keys"}))
    return layer_chart(
        rows,
        f"{name}: {numbers.number(round(correlation['correlation'], 2))}",
        f"Dot plot of the loss increase without a head against {name}. Rank correlation "
        f"{findings.format_correlation(correlation)}.",
        level(0, ""),
        *dots(rows, x.title(name).axis(tickCount=5, grid=False), y.axis(tickCount=4), tooltip, legend=False),
        height=theme.PANEL_HEIGHT,
    )


def list_panels(policies: Sequence[Row]) -> list[str]:
    """The titles of ``PANELS`` that have a policy of their own in ``loss_by_keys``."""
    measured = {row["policy"] for row in policies} - {*REFERENCES}
    return [title for title, names in PANELS.items() if measured & {*names}]


def loss_by_keys(policies: Sequence[Row], *, panel: str) -> alt.LayerChart:
    """Increase of the loss against the mean number of keys, a curve for each policy of a panel (``loss_by_keys``)."""
    rows = [{**row, "name": findings.POLICIES[row["policy"]]} for row in policies if row["policy"] in PANELS[panel]]
    drawn = [name for name in PANELS[panel] if any(row["policy"] == name for row in rows)]
    labels = [findings.POLICIES[name] for name in drawn if name not in CONTROLS]
    kept = [row["keys_kept"] for row in rows]
    ticks = [tick for tick in log_ticks(int(max(kept)) + 1) if tick >= min(kept) / 2]
    x = log_axis("keys_kept", "Keys kept, mean (log scale)", ticks, padding=12)
    y = partial(alt.Y, title="Loss increase (nats)", scale=alt.Scale(type="symlog", constant=NATS, nice=False))
    shown = {"keys_kept": "Keys kept", "delta_loss": "Loss increase", **ENDS}
    shown |= {"excess_loss": "Excess over the same N"}
    tooltip = [*tooltips(name="Policy"), alt.Tooltip("draws:Q", title="Draws"), *tooltips(".3~g", **shown)]
    base = alt.Chart().encode(x=x, tooltip=tooltip)
    marks = []
    for policy in drawn:
        mine = base.transform_filter(f"datum.policy == '{policy}'")
        if policy in CONTROLS:
            marks += [
                mine.mark_line(style="reference").encode(y=y("delta_loss:Q")),
                mine.mark_point(style="reference", shape="cross").encode(y=y("delta_loss:Q")),
            ]
            continue
        of_policy = (
            mine.mark_area().encode(y=y("low:Q"), y2=alt.Y2("high:Q")),
            mine.mark_line().encode(y=y("delta_loss:Q")),
            mine.mark_point(filled=True, size=45).encode(y=y("delta_loss:Q")),
        )
        area, *others = (style_line(mark, labels, findings.POLICIES[policy]) for mark in of_policy)
        area["encoding"]["strokeDash"] = alt.Undefined  # an area has no dashes
        marks += [area, *others]
    return layer_chart(
        rows,
        panel,
        f"Line chart of the loss increase against the number of keys kept. {findings.describe_budgets(policies)}",
        level(0, ""),
        *marks,
    )
