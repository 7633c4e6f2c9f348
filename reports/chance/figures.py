"""Whether heads separate what they select better than chance: against N, head by head, and over all radii."""

from collections.abc import Sequence
from functools import partial
from statistics import median

import altair as alt

from reports.elements import difference_map, distinguish_lines, layer_chart, n_axis, points, tooltips
from reports.figures import NOTHING_SELECTED, Figure, Source
from reports.findings.numbers import (
    Row,
    count,
    count_sides,
    drop_nulls,
    format_spans,
    join_sentences,
    join_words,
    name_head,
    name_share,
    number,
)

MEASURES = {"auc": "AUC", "specificity": "Specificity", "recall": "Recall", "precision": "Precision"}
"""Measures that are compared with nulls on the page."""

NULLS = {"random_selection": "random selections", "shuffled_values": "shuffled value states"}
"""The nulls with which they are compared."""


def name_drawn_sequences(row: Row, of_study: int) -> str:
    """The sequences of a study for which nulls are drawn (``separability_by_n``)."""
    drawn: int = row["sequences"]
    return name_share(1, drawn, "sequence") if drawn == of_study else f"the first {count(drawn, 'sequence')}"


def describe_nulls(rows: Sequence[Row], measure: str) -> str:
    """The N at which a measure differs from that of each null (``separability_by_n``)."""
    of_nulls = {
        name: [row for row in rows if (row["measure"], row["null_model"]) == (measure, null)]
        for null, name in NULLS.items()
    }
    if not any(drop_nulls(rows_of_null, "low") for rows_of_null in of_nulls.values()):
        return f"There are no intervals for {MEASURES[measure]}: these need several sequences."
    clauses = (_describe_sides(rows_of_null, name) for name, rows_of_null in of_nulls.items())
    return f"{MEASURES[measure]} is {', and '.join(clauses)} (95 % intervals of differences)."


def _describe_sides(rows: Sequence[Row], name: str) -> str:
    order = [row["n"] for row in rows]
    sides = {
        "above": [row["n"] for row in drop_nulls(rows, "low") if row["low"] > 0],
        "below": [row["n"] for row in drop_nulls(rows, "high") if row["high"] < 0],
    }
    places = [f"{side} {{}} at N = {format_spans(numbers, order)}" for side, numbers in sides.items() if numbers]
    return (
        " and ".join(places).replace("{}", f"that of {name}", 1).replace("{}", "it")
        or f"at no N different from that of {name}"
    )


def describe_heads(of_auc: Sequence[Row]) -> str:
    """AUC of every head minus that of a null at one N (``separability_at_n``, of one null)."""
    most = max(of_auc, key=lambda row: row["difference"])
    return join_sentences(
        f"At N = {most['n']}, AUC minus that of {NULLS[most['null_model']]} is "
        f"{number(median(row['difference'] for row in of_auc))} in the median head, and largest in {name_head(most)}, "
        f"with {number(most['difference'])}.",
        count_sides(of_auc),
    )


FLOOR = "Precision is never below N/n, the share of the keys that is selected, so it rises towards 1 in any head."
"""Note on Precision wherever it is drawn."""


SELECTED = "keys of largest weight"  # The selections themselves, as the legend names them

_LABELS = [SELECTED, *NULLS.values()]


def draw_chance(curves: Sequence[Row], *, measure: str) -> alt.LayerChart:
    """A measure of the model against N, with both nulls (``separability_by_n``)."""
    rows = _build_rows(curves, measure)
    last = max(row["n"] for row in rows)
    name = MEASURES[measure]
    y = partial(alt.Y, title=f"{name} (ratio)", scale=alt.Scale(domain=[0, 1]))
    color, dash = distinguish_lines("label", _LABELS)
    base = alt.Chart().encode(x=n_axis(last), color=color)
    nulls = {"random_selection": "Random selections", "shuffled_values": "Shuffled value states"}
    tooltip = tooltips(".3~f", n="N", **nulls, selected=name)
    return layer_chart(
        rows,
        f"{name} and chance",
        f"Line chart against N on a log axis. {describe_nulls(curves, measure)}",
        base.mark_area(clip=True).encode(y=y("band_low:Q"), y2=alt.Y2("band_high:Q")),
        base.mark_line().encode(y=y("mean:Q"), strokeDash=dash),
        points(base.encode(y=y("mean:Q"), tooltip=tooltip), always=last == 1),
    )


def _build_rows(curves: Sequence[Row], measure: str) -> list[Row]:
    """Build a row for each line and N; outside the band around a null the interval of the difference excludes 0."""
    by_n: dict[int, dict[str, Row]] = {}
    for row in curves:
        if row["measure"] == measure:
            by_n.setdefault(row["n"], {})[row["null_model"]] = row
    pairs: list[Row] = []
    for n, nulls in by_n.items():
        value = next(iter(nulls.values()))["value"]
        same = {"n": n, "selected": value, **{null: row["null_value"] for null, row in nulls.items()}}
        pairs.append({**same, "label": SELECTED, "mean": value, "band_low": None, "band_high": None})
        for null, row in nulls.items():
            known = row["low"] is not None
            ends = {"band_low": value - row["high"], "band_high": value - row["low"]} if known else {}
            pairs.append(
                {**same, "label": NULLS[null], "mean": row["null_value"], "band_low": None, "band_high": None} | ends
            )
    return pairs


_DRAWN = ("auc", "specificity")  # Measures that are drawn here: Precision and Recall have figures of their own


def build_figures(source: Source) -> tuple[Figure, ...]:
    """Measures of the whole model compared with nulls."""
    return (_build_model(source), _build_curves(source))


def _build_model(source: Source) -> Figure:
    draft = Figure("chance-by-n", "Measures without a floor, against chance", source.ask_query("separability_by_n"))
    if not draft.rows:
        return draft.leave_empty(_explain_absence(source))
    first = draft.rows[0]
    return draft.show(
        join_sentences(*(describe_nulls(draft.rows, measure) for measure in _DRAWN)),
        f"Mean over heads and {name_drawn_sequences(first, source.overview['sequences'])}, with "
        f"{count(first['draws'], 'draw')} of each null. Shuffled value states show what the weights alone "
        "give. The paper draws no such figure and compares with no null.",
        marks="AUC: probability that a selected key is nearer to s_N than one left out. Specificity: share of the keys "
        "left out that lie beyond r_max. Band around a null: where the model does not differ from it.",
        charts=tuple(draw_chance(draft.rows, measure=measure) for measure in _DRAWN),
        titled=True,
        tab="AUC, specificity",
    )


def build_heads(source: Source) -> Figure:
    """AUC of every head at one N minus that of both nulls, marked if the interval excludes 0."""
    draft = Figure(
        "chance-heads",
        f"AUC against chance at N = {source.n}, head by head",
        source.ask_query("separability_at_n", measure="auc", n=source.n),
    )
    if not draft.rows:
        return draft.leave_empty(_explain_absence(source))
    of_nulls = {null: [row for row in draft.rows if row["null_model"] == null] for null in NULLS}
    told = {null: describe_heads(rows) for null, rows in of_nulls.items()}
    shown = {"value": "AUC", "null_value": "AUC by chance", "difference": "Difference"}
    return draft.show(
        join_sentences(*told.values()),
        "About one in twenty heads that do not differ from chance has a mark. The paper draws no such figure.",
        marks="Blue: AUC above chance; orange: below. + and −: the whole 95 % interval over sequences lies on that "
        "side of 0.",
        tab="Head by head",
        charts=tuple(
            difference_map(rows, "difference", f"Minus {NULLS[null]}", told[null], shown)
            for null, rows in of_nulls.items()
        ),
        titled=True,
    )


def _build_curves(source: Source) -> Figure:
    draft = Figure("separation-curves", "Recall over all radii", source.ask_query("separation_curves"))
    if not draft.rows:
        return draft.leave_empty(_explain_absence(source))
    by_rank = {row["auc_rank"]: row for row in draft.rows}
    heads, areas = (
        join_words([write(row) for row in by_rank.values()]) for write in (name_head, lambda row: number(row["auc"]))
    )
    told = (
        f"Of all heads, the mean AUC at N = {draft.rows[0]['n']:,} is {join_words([*by_rank])} in {heads}; in sequence "
        f"{draft.rows[0]['sequence']} alone, which is drawn, it is {areas}."
    )
    rows = [{**row, "label": f"{row['auc_rank']} mean AUC: {name_head(row)}"} for row in draft.rows]
    labels = list(dict.fromkeys(row["label"] for row in rows))
    color, dash = distinguish_lines("label", labels, columns=1)
    share = alt.X("false_positive_share:Q", title="Share of the keys left out within r")
    x = share.scale(domain=[0, 1]).axis(tickCount=6, grid=False)
    y = alt.Y("recall:Q", title="Recall R(r, N) (ratio)", scale=alt.Scale(domain=[0, 1]))
    shown = {"radius": "Radius r (model units)", "recall": "Recall", "precision": "Precision", "auc": "AUC"}
    tooltip = [*tooltips(",d", layer="Layer", head="Head"), *tooltips(".3~g", **shown)]
    base = alt.Chart().encode(x=x, y=y, color=color)
    chart = layer_chart(
        rows,
        f"Recall over all radii at N = {rows[0]['n']}",
        f"Line chart. {told}",
        base.mark_line().encode(order=alt.Order("point:Q"), strokeDash=dash),
        points(base.encode(tooltip=tooltip)),
    )
    return draft.show(
        told,
        "Share of the selected keys inside the ball of radius r around s_N (R(r, N), equations 3 and 32 of the paper) "
        "against the share of the other keys inside it, as r grows; AUC is the area under the curve. Heads with the "
        "highest, median and lowest mean AUC at N = 4.",
        tab="Over all radii",
        broad=True,
        charts=(chart,),
    )


def _explain_absence(source: Source) -> str:
    without = "The study draws no nulls, or was landed by an earlier version: set analysis.nulls and run it again."
    return without if source.last_n else NOTHING_SELECTED
