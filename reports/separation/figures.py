"""How well heads separate what they select: against chance and random weights, with bounds, head by head."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from statistics import median

import altair as alt

from reports.chance import figures as chance
from reports.chance.figures import FLOOR
from reports.elements import (
    ENDS,
    HEAD,
    THINNED,
    colour_bars,
    colour_cells,
    count_axis,
    distinguish_lines,
    floor_of_precision,
    head_grid,
    layer_chart,
    list_layers,
    n_axis,
    points,
    rule_at,
    style_line,
    tooltips,
    write_in_cells,
)
from reports.figures import NOTHING_SELECTED, Figure, Section, Source, find_shown_kappa, only_row
from reports.findings.numbers import (
    NAMES,
    Row,
    count,
    describe_course,
    describe_range,
    drop_nulls,
    format_spans,
    join_sentences,
    join_words,
    number,
)

ELBOW_RANGES = ("N = 3 or 4, in the paper’s range", "beyond it")
"""Ranges of the elbow, as the legend names them; N = 1 and 2 cannot be an elbow."""

WITHOUT_ELBOW = {
    "no_bend": "the harmonic mean of Precision and Recall falls from N = 2 on without bending downwards",
    "no_decline": "after N = 2 the harmonic mean of Precision and Recall does not fall",
    "trivial": "the only N is the trivial one, N = 1",
}
"""Why a curve has no elbow, by status."""


def join_bounds(curves: Sequence[Row], metric: str) -> list[Row]:
    """One row per N of a metric (``bounds_by_n``): mean, interval, printed bounds, scale-free bound, and verdicts.

    ``inside`` and ``free_inside`` say whether the mean lies within the printed bounds and the scale-free one, up to
    rounding, as the warehouse decides it (NULL: there are none); ``outside``, whether it lies beyond either.
    """
    families = {
        family: {row["n"]: row for row in curves if (row["metric"], row["family"]) == (metric, family)}
        for family in ("printed", "scale_free")
    }
    none = {"lower": None, "upper": None, "inside": None}
    rows = []
    for n in sorted({*families["printed"], *families["scale_free"]}):
        printed, free = (families[family].get(n, none) for family in families)
        of_mean = families["printed"].get(n) or families["scale_free"][n]
        row = {"metric": metric, **{name: of_mean[name] for name in ("n", "mean", "low", "high", "precision_floor")}}
        row |= {"lower": printed["lower"], "upper": printed["upper"], "scale_free_lower": free["lower"]}
        row |= {"inside": printed["inside"], "free_inside": free["inside"]}
        rows.append({**row, "outside": False in (printed["inside"], free["inside"])})
    return rows


def describe_envelope(rows: Sequence[Row], metric: str) -> str:
    """The N at which the mean of a metric lies inside its bounds, and outside (rows joined with their bounds)."""
    enclosed = drop_nulls(rows, "inside")
    if not enclosed:
        return "No N has printed bounds to compare it with."
    order, beyond = [row["n"] for row in rows], [row for row in enclosed if not row["inside"]]
    sides = {
        "above": [row["n"] for row in beyond if row["mean"] > row["upper"]],
        "below": [row["n"] for row in beyond if row["mean"] < row["lower"]],
    }
    outside = [f"{side} it at N = {format_spans(numbers, order)}" for side, numbers in sides.items() if numbers]
    inside = len(enclosed) - len(beyond)
    text = f"The mean of {NAMES[metric]} lies inside the printed envelope at {inside} of the {len(enclosed)} N shown"
    return join_sentences(f"{', '.join([text, *outside])}.", _describe_scale_free(rows))


def _describe_scale_free(rows: Sequence[Row]) -> str:
    bounded = drop_nulls(rows, "free_inside")
    if not bounded:
        return ""
    if below := [row["n"] for row in bounded if not row["free_inside"]]:
        return f"It lies below the scale-free lower bound at N = {format_spans(below, [row['n'] for row in rows])}."
    beyond = [row for row in bounded if row["n"] > 1]
    if not beyond:
        return ""
    highest = max(beyond, key=lambda row: row["scale_free_lower"])
    if not highest["scale_free_lower"]:
        return "The scale-free lower bound is 0 at every N above 1."
    return (
        f"The scale-free lower bound is never above it; for N above 1 it is highest at N = {highest['n']:,}, with "
        f"{number(highest['scale_free_lower'])}."
    )


def describe_curve(curves: Sequence[Row], metric: str) -> str:
    """Course of one metric from the first N to the last (``curves_by_n``)."""
    points = [row for row in curves if row["metric"] == metric]
    return f"{NAMES[metric]} {describe_course(points, 'mean')}."


def describe_fewer_heads(curves: Sequence[Row]) -> str:
    """The N from which fewer heads are behind a curve (``curves_by_n``); empty if there is none."""
    most, least = max(row["heads"] for row in curves), min(row["heads"] for row in curves)
    if most == least:
        return ""
    full = max(row["n"] for row in curves if row["heads"] == most)
    return (
        f"A sliding window limits the keys of some heads: beyond N = {full:,} the curves are means of fewer heads, "
        f"{least} instead of {most} at the end."
    )


def describe_elbows(heads: Sequence[Row]) -> str:
    """Elbows of the heads (``elbow_by_head``)."""
    elbows = [row["elbow_n"] for row in drop_nulls(heads, "elbow_n")]
    without = [row for row in heads if row["elbow_n"] is None]
    if not elbows:
        return f"No head has an elbow: {_explain_no_elbow(heads)}."
    small = sum(n <= 4 for n in elbows)
    none = f" {count(len(without), 'head')} {'has' if len(without) == 1 else 'have'} none." if without else ""
    return (
        f"Of {count(len(elbows), 'head')} with an elbow, {small} {'has' if small == 1 else 'have'} it at N = 3 or 4; "
        f"the median is N = {number(median(elbows))}.{none}"
    )


def _explain_no_elbow(heads: Sequence[Row]) -> str:
    """Why heads have no elbow, by status; NULL is that of a head that attends to one key."""
    reasons: dict[str | None, str] = {None: "there is no N"}
    reasons.update(WITHOUT_ELBOW.items())
    numbers = {status: of_status for status in reasons if (of_status := sum(row["status"] == status for row in heads))}
    if len(numbers) == 1:
        return reasons[next(iter(numbers))]
    return "; ".join(f"in {count(of_status, 'head')} {reasons[status]}" for status, of_status in numbers.items())


def describe_model_elbow(model: Row | None) -> str:
    """Elbow of the model's mean curves (``elbows_model``)."""
    if model is None:
        return ""
    if model["elbow_n"] is None:
        return f"The model’s mean curves have no elbow: {WITHOUT_ELBOW[model['status']]}."
    return (
        f"The harmonic mean of Precision and Recall bends at N = {model['elbow_n']:,}, where it is "
        f"{number(model['harmonic_mean'])}, and is lowest at "
        f"N = {model['lowest_n']:,}, with {number(model['lowest_harmonic_mean'])}."
    )


WRITTEN_HEADS, WRITTEN_HEIGHT = 12, 16
"""Largest number of heads per row, and least height of a row in pixels, with which values are written in cells."""

BOUNDED = {metric: f"{name} against N, with bounds" for metric, name in NAMES.items()}
"""Titles of charts with bounds; the paper draws no F."""

LINES = {"mean": "mean", "upper": "upper, printed", "lower": "lower, printed", "scale_free_lower": "lower, scale-free"}
"""Lines of a chart with bounds, as its legend names them."""


MODEL, TWIN = "this model", "random weights"  # The model and its twin, as the legend names them


def draw_metric_curves(
    curves: Sequence[Row], nulls: Sequence[Row], twin: Sequence[Row] | None, *, metric: str
) -> alt.LayerChart:
    """One metric of the model against N, with nulls, twin and printed bounds (Figure 5; ``bounds_by_n``).

    The others are ``separability_by_n`` and the twin's ``curves_by_n``, or None.
    """
    rows = join_bounds(curves, metric)
    last, name = max(row["n"] for row in rows), NAMES[metric]
    others = _build_others(nulls, twin, metric, last)
    labels = list(dict.fromkeys([MODEL, *(row["label"] for row in others)]))
    y = partial(alt.Y, title=f"{name} (ratio)", scale=alt.Scale(domain=[0, 1]))
    base, beside = alt.Chart().encode(x=n_axis(last)), alt.Chart(alt.InlineData(values=others)).encode(x=n_axis(last))
    color, dash = distinguish_lines("label", labels)
    interval = {"mean": name, **ENDS}
    tooltip = tooltips(".3~g", n="N", **interval, lower="Lower bound", upper="Upper bound")
    line = base.transform_calculate(label=f"'{MODEL}'").encode(y=y("mean:Q"), color=color, strokeDash=dash)
    of_others = beside.mark_line(point=last == 1).encode(y=y("mean:Q"), color=color, strokeDash=dash)
    return layer_chart(
        rows,
        f"{name} against N",
        f"Line chart against N on a log axis, with {', '.join(labels)}. {describe_curve(rows, metric)}",
        base.mark_area(style="envelope").encode(y=y("lower:Q"), y2=alt.Y2("upper:Q")),
        *(floor_of_precision(base, y("precision_floor:Q"), rows) if metric == "precision" else []),
        base.mark_area(style="band").encode(y=y("low:Q"), y2=alt.Y2("high:Q")),
        *([of_others] if others else []),
        line.mark_line(point=last == 1, strokeWidth=2.75),
        points(base.encode(y=y("mean:Q"), tooltip=tooltip), always=last == 1),
    )


def _build_others(nulls: Sequence[Row], twin: Sequence[Row] | None, metric: str, last: int) -> list[Row]:
    """Build the curves to compare with, a row for each line and N up to the model's last."""
    lines = [
        {"label": label, "n": row["n"], "mean": row["null_value"]}
        for null, label in chance.NULLS.items()
        for row in nulls
        if (row["measure"], row["null_model"]) == (metric, null)
    ]
    of_twin = [] if twin is None else [row for row in twin if row["metric"] == metric]
    lines += [{"label": TWIN, "n": row["n"], "mean": row["mean"]} for row in of_twin if row["n"] <= last]
    return [{**row, "mean": float(f"{row['mean']:.6g}")} for row in lines if row["mean"] is not None]


def draw_metric_bounds(curves: Sequence[Row], *, metric: str, elbow_n: int | None) -> alt.LayerChart:
    """One metric of the model against N with its bounds; means outside are marked (Figure 5; ``bounds_by_n``)."""
    rows = join_bounds(curves, metric)
    last = max(row["n"] for row in rows)
    y = partial(alt.Y, title=f"{NAMES[metric]} (ratio)", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart().encode(x=n_axis(last))
    outside = base.mark_point(style="outside", shape="diamond").encode(y=y("mean:Q")).transform_filter("datum.outside")
    bounds = {column: f"Bound: {name}" for column, name in LINES.items() if column != "mean"}
    shown = {"mean": NAMES[metric], **ENDS} | bounds
    tooltip = tooltips(".3~g", n="N", **shown)
    single = last == 1  # a point, since a line would show nothing
    return layer_chart(
        rows,
        BOUNDED[metric],
        f"Line chart against N on a log axis. {describe_curve(rows, metric)} {describe_envelope(rows, metric)}",
        *([rule_at("n", elbow_n, f"elbow: N = {elbow_n}")] if elbow_n else []),
        *(floor_of_precision(base, y("precision_floor:Q"), rows) if metric == "precision" else []),
        base.mark_area(style="band").encode(y=y("low:Q"), y2=alt.Y2("high:Q")),
        *(
            style_line(base.mark_line(point=single).encode(y=y(f"{column}:Q")), list(LINES.values()), name)
            for column, name in reversed(LINES.items())
        ),
        outside,
        points(base.encode(y=y("mean:Q"), tooltip=tooltip), always=single),
    )


def _find_elbow_bin(n: int) -> tuple[int, str]:
    """First N and name of the bar an elbow falls in: each N up to 4 alone, then doubling ranges."""
    if n <= 4:
        return n, str(n)
    first = 2 ** ((n - 1).bit_length() - 1) + 1
    return first, f"{first}–{2 * (first - 1)}"


PAPERS = {"precision": "Figure 5, left", "recall": "Figure 5, right"}
"""Where the paper draws a measure of the whole model."""

_PAPER = {
    "precision": (
        "Theorem 1 (equations 12 and 13). In the paper the mean lies within the bounds, is highest for N from 1 to 4, "
        "and is lowest at intermediate N."
    ),
    "recall": (
        "Theorem 2 (equations 14 and 15). In the paper the mean lies within the bounds and stays close to the upper "
        "one for moderate N; the lower one is 0 from small N on."
    ),
    "f_r_max": "Corollary 1 (equation 17), from the bounds of Precision; the paper draws no such figure.",
    "f_r_min": "Corollary 1 (equation 16), from the bounds of Recall; the paper draws no such figure.",
}
"""Where bounds stand in the paper, and what it found."""


def build_section(source: Source) -> Section:
    """The model against N, compared with chance and random weights, its elbows, and each head at one N."""
    nulls = ["N keys at random", "the same weights on shuffled value states"]
    beside = nulls if source.ask_query("separability_by_n").table.num_rows else []
    beside += ["random weights"] if _read_twin(source) is not None else []
    return Section(
        "separation",
        "Do heads separate what they select?",
        join_sentences(
            "Precision is the share of selected keys among those no farther from s_N than the farthest selected one.",
            f"The model is compared with {join_words(beside)}." if beside else "",
        ),
        (
            _build_metric(source, "precision"),
            _build_metric(source, "recall"),
            *chance.build_figures(source),
            _build_elbows(source),
            _build_map(source, "precision"),
            _build_map(source, "recall"),
            chance.build_heads(source),
        ),
    )


def _build_metric(source: Source, metric: str) -> Figure:
    draft = Figure(f"{metric}-by-n", f"{NAMES[metric]} against N", source.ask_shown("bounds_by_n"))
    draft = draft.select("metric", metric)
    rows = join_bounds(draft.rows, metric)
    if not rows:
        return draft.leave_empty(NOTHING_SELECTED)
    nulls, twin = source.ask_query("separability_by_n").rows(), _read_twin(source)
    drawn = chance.name_drawn_sequences(nulls[0], source.overview["sequences"]) if nulls else ""
    return draft.show(
        join_sentences(
            describe_curve(rows, metric),
            chance.describe_nulls(nulls, metric) if nulls else "",
            describe_fewer_heads(source.ask_query("curves_by_n").rows()),
        ),
        join_sentences(
            "Line: mean over heads.",
            FLOOR if metric == "precision" else "",
            _describe_settings(source) if metric in _PAPER else "",
            f"The nulls are drawn for {drawn}, at N on a log grid; value states of all keys but the sink and the last "
            "are shuffled."
            if nulls
            else "",
            f"Random weights: the study {source.twin.study}." if twin is not None and source.twin else "",
            _PAPER[metric],
        ),
        paper=PAPERS[metric],
        marks=join_sentences(
            "Blue band: 95 % interval over sequences; grey: between the paper’s bounds.",
            "Dashed: the floor N/n." if metric == "precision" else "",
        ),
        tab="Precision, Recall",
        charts=(draw_metric_curves(draft.rows, nulls, twin, metric=metric),),
    )


def _read_twin(source: Source) -> list[Row] | None:
    """Read the curves of the twin, if its query has the same position."""
    twin = source.twin
    return twin.ask_query("curves_by_n").rows() if twin is not None and twin.query == source.query else None


def build_bounded(source: Source, metric: str) -> Figure:
    """One metric of the whole model against N, with all its bounds (Figure 5)."""
    draft = Figure(f"{metric.replace('_', '-')}-bounds", BOUNDED[metric], source.ask_shown("bounds_by_n"))
    draft = draft.select("metric", metric)
    rows = join_bounds(draft.rows, metric)
    if not rows:
        return draft.leave_empty(NOTHING_SELECTED)
    elbow = only_row(source.ask_query("elbows_model"))
    return draft.show(
        describe_envelope(rows, metric),
        "Line: mean over heads, each first averaged over sequences; band: its 95 % interval over sequences. "
        f"{_describe_settings(source)} {FLOOR + ' ' if metric == 'precision' else ''}{_PAPER[metric]}",
        marks="Diamonds: N where the mean lies outside a bound.",
        tab=NAMES[metric],
        broad=True,
        charts=(draw_metric_bounds(draft.rows, metric=metric, elbow_n=elbow["elbow_n"] if elbow else None),),
    )


def _describe_settings(source: Source) -> str:
    """κ and scale of the printed bounds that are drawn."""
    row = find_shown_kappa(source.ask_query("coverage").rows())
    if row is None:
        return ""
    chosen = "the tightest tried" if row["serves_best"] else "in the middle of those tried"
    return f"Printed bounds at κ = {number(row['kappa'])}, {chosen}, in scale ‘{row['scale']}’."


def _build_elbows(source: Source) -> Figure:
    draft = Figure("elbows", "Elbow of every head", source.ask_query("elbow_by_head"))
    told = describe_elbows(draft.rows)
    if not drop_nulls(draft.rows, "elbow_n"):
        return draft.leave_empty(told if source.last_n else NOTHING_SELECTED)
    bins = Counter(_find_elbow_bin(row["elbow_n"]) for row in drop_nulls(draft.rows, "elbow_n"))
    inside, beyond = ELBOW_RANGES
    rows = [
        {"bin": name, "first": first, "heads": bins[first, name], "range": inside if first <= 4 else beyond}
        for first, name in sorted(bins)
    ]
    order = [name for _, name in sorted(bins)]
    x = alt.X("bin:N", sort=order).title("N of the elbow").axis(labelAngle=0, **THINNED)
    y = alt.Y("heads:Q", **count_axis("Heads", max(bins.values())))
    color = colour_bars("range", ELBOW_RANGES)
    tooltip = tooltips(bin="Elbow at N", heads="Heads")
    bars = alt.Chart().mark_bar(style="bar").encode(x=x, y=y, color=color, tooltip=tooltip)
    description = f"Bar chart of the number of heads by N of their elbow. {told}"
    chart = layer_chart(rows, draft.title, description, bars)
    return draft.show(
        join_sentences(describe_model_elbow(only_row(source.ask_query("elbows_model"))), told),
        "The elbow of the harmonic mean of mean Precision and mean Recall is the N where it lies "
        "highest above the straight line, over log N, from N = 2 to its minimum. In the paper the strongest "
        "non-trivial separability lies at N from 1 to 4.",
        tab="Elbows",
        charts=(chart,),
    )


def _build_map(source: Source, metric: str) -> Figure:
    draft = Figure(f"{metric}-map", f"{NAMES[metric]} of every head", source.ask_query("heads_at_n", n=source.n))
    table = draft.table.select(["layer", "head", "sequences", metric])
    rows: list[Row] = table.to_pylist()
    known = drop_nulls(rows, metric)
    if not known:
        return draft.leave_empty(NOTHING_SELECTED)
    values: list[float] = [row[metric] for row in known]
    name, n, blank = NAMES[metric], source.n, len(rows) - len(known)
    told = f"{name} is {describe_range(known, metric)}; the median is {number(median(values))}."
    fallback = f"N = {source.asked_n} was asked for, but the largest N of any head is {n}."
    columns = len({row["head"] for row in rows})
    base, height = head_grid(rows)
    cells = base.mark_rect().encode(
        color=colour_cells(metric, height, ".2~f"), tooltip=[*HEAD, *tooltips(".3~g", **{metric: name})]
    )
    text, middle = alt.Text(f"{metric}:Q", format=".2f"), (min(values) + max(values)) / 2
    written = write_in_cells(base, text, f"datum.{metric}", middle)
    chart = layer_chart(
        known,
        f"{name} of every head at N = {n}",
        f"Heat map of {name}, layers by heads, at N = {n}. {told}",
        cells,
        *(written if columns <= WRITTEN_HEADS and height >= WRITTEN_HEIGHT * len(list_layers(rows)) else []),
        height=height,
    )
    return draft.show(
        join_sentences(told, f"Blank: {count(blank, 'head')} with {n} keys or fewer." if blank else ""),
        join_sentences(
            "Mean over sequences; the colours span the values of this study.",
            FLOOR if metric == "precision" else "",
            fallback if source.asked_n > source.n else "",
        ),
        part=table,
        tab="Head by head",
        charts=(chart,),
    )
