"""How Precision, Recall, specificity, elbows and kinds of heads change with the size of the context."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from math import isnan
from statistics import fmean

import altair as alt
import pyarrow as pa

from geometry.statistics.intervals import estimate_mean
from reports import theme
from reports.chance.figures import FLOOR, MEASURES
from reports.elements import (
    DASHES,
    ENDS,
    X2Value,
    XValue,
    difference_map,
    draw_dotted_lines,
    layer_chart,
    log_axis,
    tooltips,
)
from reports.figures import Figure, Source
from reports.findings.claims import format_interval
from reports.findings.numbers import Row, count_sides, describe_range, drop_nulls, format_ends, join_sentences, number
from reports.kinds.labels import LABELS, segments, stack_shares

METRICS = ("precision", "recall", "specificity")  # The measures that are drawn against the size of the context


def has_several_contexts(rows: Sequence[Row]) -> bool:
    """Whether there is more than one query to compare."""
    return len({row["query"] for row in rows}) > 1


def describe_metric(rows: Sequence[Row], metric: str) -> str:
    """The N at which one metric changes most from the smallest context to the largest (``metrics_by_query``)."""
    points = [row for row in rows if row["metric"] == metric]
    first, last = (pick(row["query"] for row in points) for pick in (min, max))
    before, after = ({row["n"]: row for row in points if row["query"] == query} for query in (first, last))
    shared = sorted(set(before) & set(after) - ({1} if metric == "recall" else set()))
    if not shared:
        return f"{MEASURES[metric]} has no N to compare between {first + 1:,} and {last + 1:,} tokens."
    most = max(shared, key=lambda n: abs(after[n]["mean"] - before[n]["mean"]))
    return (
        f"From {first + 1:,} to {last + 1:,} tokens {MEASURES[metric]} changes most at N = {most:,}, from "
        f"{format_interval(before[most], 'mean')} to {format_interval(after[most], 'mean')}."
    )


def average_sequences(rows: Iterable[Row], *keys: str) -> list[Row]:
    """The mean of ``value`` over the sequences of rows, which are sorted by these columns: mean, low, high."""
    averaged = []
    for place, some in groupby(rows, key=lambda row: [row[key] for key in keys]):
        found = list(some)
        ends = estimate_mean([row["value"] for row in found]).name_ends("mean")
        mean, low, high = (None if isnan(end) else float(end) for end in ends.values())
        averaged.append(dict(zip(keys, place, strict=True)) | {"mean": mean, "low": low, "high": high})
    return averaged


def describe_slopes(rows: Sequence[Row], n: int) -> str:
    """Change of the mean over heads of each metric as the context doubles (``context_slopes`` at N = n)."""
    told = []
    for kept, words in {"number": f"At N = {n:,}", "share": "With a quarter of the keys selected"}.items():
        points = sorted((row for row in rows if row["kept"] == kept), key=lambda row: int(row["sequence"]))
        if points:
            first, last = min(row["first_context"] for row in points), max(row["last_context"] for row in points)
            changes = [f"{MEASURES[metric]} {_describe_slope(points, metric)}" for metric in METRICS]
            told.append(f"{words}, each doubling of the context from {first:,} to {last:,} keys: {', '.join(changes)}.")
    return join_sentences(*told)


def _describe_slope(points: Iterable[Row], metric: str) -> str:
    """Say which way the mean over heads goes, if its interval over sequences says it."""
    by_sequence = groupby(points, key=lambda row: row["sequence"])
    values = [{"value": fmean(row[metric] for row in some)} for _, some in by_sequence]
    (row,) = average_sequences(values)
    if row["low"] is None:
        return f"changes by {number(row['mean'])}"
    if row["low"] <= 0 <= row["high"]:
        return f"neither falls nor rises for certain ({format_ends(row['low'], row['high'], number)})"
    small, mean, large = sorted(abs(end) for end in row.values())
    return f"{'rises' if row['low'] > 0 else 'falls'} by {number(mean)} ({format_ends(small, large, number)})"


def average_slopes(rows: Iterable[Row], metric: str) -> list[Row]:
    """The change of a metric of every head as the context doubles at one N, with its interval over sequences."""
    at_n = ({**row, "value": row[metric]} for row in rows if row["kept"] == "number")
    return average_sequences(at_n, "layer", "head")


def describe_head_slopes(slopes: Sequence[Row], metric: str) -> str:
    """How many heads change for certain, and between which values (``average_slopes``)."""
    return f"{MEASURES[metric]} changes by {describe_range(slopes, 'mean')}. {count_sides(slopes)}".strip()


def describe_elbows(rows: Sequence[Row]) -> str:
    """Change of the elbows with the context (``elbows_by_query``)."""
    ordered = sorted(rows, key=lambda row: int(row["query"]))
    return join_sentences(
        _describe_move("The elbow of the model’s mean curves", drop_nulls(ordered, "model_elbow_n"), "model_elbow_n"),
        _describe_move("The median elbow of heads", drop_nulls(ordered, "median_elbow_n"), "median_elbow_n"),
    )


def _describe_move(what: str, rows: Sequence[Row], column: str) -> str:
    if not rows:
        return f"{what} exists at none of the context sizes."
    first, last = rows[0], rows[-1]
    if first is last:
        return f"{what} exists only at {first['query'] + 1:,} tokens, at N = {number(first[column])}."
    way = "stays at" if first[column] == last[column] else f"moves from N = {number(first[column])} to"
    return f"{what} {way} N = {number(last[column])} between {first['query'] + 1:,} and {last['query'] + 1:,} tokens."


APART = 13  # Smallest distance of the names at the ends of lines, in pixels
INSIDE = 14  # Room between the last points and the edge of the plotting area, in pixels
LEADER = 16  # Length of the strokes to the names of lines beyond that edge, in pixels
ELBOWS = {"median_elbow_n": "median head", "model_elbow_n": "model"}  # Elbows that are drawn, as the legend names them


def draw_context_metric(metrics: Sequence[Row], *, metric: str, same: str = "n") -> alt.LayerChart:
    """Precision, Recall or specificity against the size of the context (``metrics_by_query``).

    Along a line ``same`` is the same: ``n``, or ``share``, the number of keys of which one is selected.
    """
    rows_of_metric = [_add_context(row) for row in metrics if row["metric"] == metric]
    rows = [row for row in rows_of_metric if row["n"] > 1] or rows_of_metric  # at N = 1 all are 1 by definition
    rows = rows if same == "n" else _drop_single(rows)
    top, name = max(row["mean"] for row in rows) or 1, MEASURES[metric]
    scale = alt.Scale(domain=[0, top], nice=False)
    y = alt.Y("mean:Q", title=f"{name} (ratio)", scale=scale)
    order = sorted({row[same] for row in rows})
    color = alt.Color(f"{same}:O", legend=None, scale=alt.Scale(domain=order))
    dashes = [list(DASHES[index % len(DASHES)]) for index in range(len(order))]
    dash = alt.StrokeDash(f"{same}:O", legend=None, scale=alt.Scale(domain=order, range=dashes))
    base = alt.Chart().encode(x=_make_axis(rows), y=y, color=color)
    floors = base.mark_tick(orient="horizontal", size=14, thickness=1.5, clip=True)  # N/n below each point
    floors = floors.transform_calculate(floor="datum.n / datum.n_keys").encode(y=alt.Y("floor:Q", scale=scale))
    shown = {"context": _CONTEXT, "n": "N", "mean": f"Mean {name}", **ENDS}
    says = describe_metric(rows_of_metric, metric) if same == "n" else "The share is the same along it."
    return layer_chart(
        rows,
        f"{name} {_SAME[same][0]}",
        f"Line chart against context size on a log axis, one line for each {_SAME[same][1]}. {says}",
        *([floors] if metric == "precision" else []),
        base.mark_line().encode(strokeDash=dash),
        base.transform_filter("isValid(datum.low)").mark_rule().encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q")),
        base.mark_point(filled=True, size=45).encode(tooltip=tooltips(".3~f", **shown, heads="Heads")),
        *_name_ends(rows, top, color, same),
    )


def _drop_single(rows: Sequence[Row]) -> list[Row]:
    """The rows with N a whole share of the context, and a share that another context has too."""
    whole = [{**row, "share": row["context"] // row["n"]} for row in rows if row["context"] % row["n"] == 0]
    sizes = {share: {row["context"] for row in whole if row["share"] == share} for share in {r["share"] for r in whole}}
    return [row for row in whole if row["share"] > 1 and len(sizes[row["share"]]) > 1]


def _add_context(row: Row) -> Row:
    return {**row, "context": row["query"] + 1}


_CONTEXT = "Tokens up to the query"

FEW = 5  # Sizes of contexts whose labels do not touch


def _make_axis(rows: Sequence[Row]) -> alt.X:
    """Sizes of contexts on a log axis, each with its label where there are few."""
    sizes = sorted({row["context"] for row in rows})
    return log_axis("context", "Context size, tokens (log scale)", sizes, thinned=len(sizes) > FEW, padding=INSIDE)


_SAME = {"n": ("against context size", "N", "N = {}"), "share": ("at a share of the keys", "share of the keys", "1/{}")}
"""By what is the same along a line: how titles go on, what lines are of, and their names."""


def _name_ends(rows: Sequence[Row], top: float, color: alt.Color, same: str) -> list[alt.Chart]:
    """Write the name of each line next to its last point, with a stroke to it, moved just enough to avoid overlaps."""
    largest = max(row["context"] for row in rows)
    ends = sorted((row for row in rows if row["context"] == largest), key=lambda row: (row["mean"], -row["n"]))
    places = _space_apart([row["mean"] / top for row in ends], APART / theme.HEIGHT)
    names = [
        {same: row[same], "end": row["mean"], "place": place * top, "note": _SAME[same][2].format(row[same])}
        for row, place in zip(ends, places, strict=True)
    ]
    base = alt.Chart(alt.InlineData(values=names)).encode(y=alt.Y("place:Q"))
    x, x2 = ({"expr": f"width {shift}"} for shift in (f"- {INSIDE}", f"+ {LEADER}"))
    leaders = base.mark_rule(strokeWidth=1).encode(
        x=XValue(x), x2=X2Value(x2), y=alt.Y("end:Q"), y2=alt.Y2("place:Q"), color=color
    )
    named = base.mark_text(style="reference-label", align="left", dx=LEADER + 4)
    return [leaders, named.encode(x=XValue("width"), text=alt.Text("note:N"))]


def _space_apart(places: Sequence[float], step: float) -> list[float]:
    """Space ascending places between 0 and 1: move them up if they are closer than ``step``, and down from 1."""
    moved = list(places)
    for index in range(1, len(moved)):
        moved[index] = max(moved[index], moved[index - 1] + step)
    moved[-1] = min(moved[-1], 1)
    for index in reversed(range(len(moved) - 1)):
        moved[index] = min(moved[index], moved[index + 1] - step)
    return moved


ONE_QUERY = (
    "The study has one query position, so there is one context size and nothing to compare; to compare several, list "
    "them in its settings, as in queries: [63, 127, 255, 511]."
)


def build_figures(source: Source) -> tuple[Figure, ...]:
    """Measures against the position of the query, of every query where it was measured."""
    answer = source.ask_study("labels_by_query")
    metrics, heads = _build_metrics(source), _build_heads(source)
    if has_several_contexts(answer.rows()):
        return (metrics, _build_elbows(source), *heads)
    if not metrics.empty:
        return (metrics, *heads)
    return (Figure("contexts-none", "Measures against context size", answer).leave_empty(ONE_QUERY),)


def _build_metrics(source: Source) -> Figure:
    """Of every query by classes of context size, else of those that were chosen."""
    curves = source.ask_study("context_curves")
    every = average_sequences(curves.rows(), "query", "n_keys", "metric", "n", "heads")
    answer = curves if every else source.ask_study("metrics_by_query")
    draft = Figure("context-metrics", "Precision, Recall and specificity against context size", answer)
    rows = every or draft.rows
    if not has_several_contexts(rows):
        return draft.leave_empty("Fewer than two of the queries have two keys to select from.")
    slopes = describe_slopes(source.ask_study("context_slopes", n=source.n).rows(), source.n)
    changes = (describe_metric(rows, metric) for metric in METRICS)
    queries = (
        " and all their queries that see at most so many keys and more than half of them"
        if every
        else ", which are the same for every size: a query selects among the tokens up to its own"
    )
    kept = ("n", "share") if bool(_drop_single([_add_context(row) for row in rows if row["n"] > 1])) else ("n",)
    return draft.show(
        slopes or join_sentences(*changes),
        f"Each point is a mean over heads, each first averaged over sequences{queries}. "
        f"At N = 1 all are 1 by definition, and left out. {FLOOR} No null is drawn: selections at "
        "random may change with the context, too. The paper measures only at 1024 tokens.",
        part=pa.Table.from_pylist(every) if every else None,
        marks="Stronger lines: larger N, or smaller shares; rules: 95 % intervals over sequences; ticks: the floor N/n "
        "of Precision.",
        tab="Context size",
        stacked=len(kept) > 1,
        charts=tuple(draw_context_metric(rows, metric=metric, same=same) for metric in METRICS for same in kept),
    )


def _build_heads(source: Source) -> Iterator[Figure]:
    """The change of every head with the context, folded; nothing without every query."""
    draft = Figure(
        "context-heads", "Change of every head with the context", source.ask_study("context_slopes", n=source.n)
    )
    slopes = {metric: average_slopes(draft.rows, metric) for metric in METRICS}
    if not slopes["recall"]:
        return
    yield draft.show(
        join_sentences(
            f"With each doubling of the context at N = {source.n}:",
            *(describe_head_slopes(rows, metric) for metric, rows in slopes.items()),
        ),
        "Slopes of straight lines in the logarithm of the context, in every sequence, over all queries. "
        "About one in twenty heads that do not change has a mark.",
        marks="Blue: a rise; orange: a fall. + and −: the whole 95 % interval over sequences lies on that side of 0.",
        charts=tuple(
            difference_map(
                rows,
                "mean",
                f"{MEASURES[metric]} at N = {source.n}, change for each doubling",
                describe_head_slopes(rows, metric),
                {"mean": "Change"},
            )
            for metric, rows in slopes.items()
        ),
        folded=True,
    )


def _build_elbows(source: Source) -> Figure:
    draft = Figure("context-elbows", "Elbow against context size", source.ask_study("elbows_by_query"))
    told = describe_elbows(draft.rows)
    if not any(drop_nulls(draft.rows, column) for column in ELBOWS):
        return draft.leave_empty(told)
    rows = [_add_context(row) for row in draft.rows]
    y = partial(alt.Y, title="N of the elbow", scale=alt.Scale(zero=True, nice=True))
    quarters = {"p25_elbow_n": "A quarter of heads below", "p75_elbow_n": "A quarter of heads above"}
    tooltip = tooltips(
        ".3~g",
        context=_CONTEXT,
        model_elbow_n="Elbow of the model",
        median_elbow_n="Median of heads",
        **quarters,
        heads="Heads with an elbow",
    )
    base = alt.Chart().encode(x=_make_axis(rows), tooltip=tooltip)
    drawn = {column: name for column, name in ELBOWS.items() if drop_nulls(rows, column)}
    chart = layer_chart(
        rows,
        draft.title,
        f"Line chart against context size on a log axis. {told}",
        base.mark_area(style="band").encode(y=y("p25_elbow_n:Q"), y2=alt.Y2("p75_elbow_n:Q")),
        *draw_dotted_lines(base, y, drawn),
    )
    return draft.show(
        told,
        "In the paper the strongest non-trivial separability lies at N from 1 to 4, at 1024 tokens.",
        marks="Band: middle half of the heads that have an elbow.",
        tab="Context size",
        charts=(chart,),
    )


def build_labels(source: Source) -> Iterator[Figure]:
    """Kinds of heads against the position of the query; nothing for one query."""
    draft = Figure("context-kinds", "Kinds of heads against context size", source.ask_study("labels_by_query"))
    if not has_several_contexts(draft.rows):
        return
    changes = source.ask_study("label_changes").rows()
    first, last = (pick(row["query"] for row in draft.rows) for pick in (min, max))
    before, after = (
        {row["label"]: row["heads"] for row in draft.rows if row["query"] == query} for query in (first, last)
    )
    moved = [
        f"{label} from {before[label]:,} to {after[label]:,} heads" for label in LABELS if before[label] != after[label]
    ]
    changed = [f"{row['changed']:,} from {row['query'] + 1:,} to {row['next_query'] + 1:,}" for row in changes]
    told = join_sentences(
        f"From {first + 1:,} to {last + 1:,} tokens: {', '.join(moved) or 'as many heads of each kind'}.",
        f"Heads that change their kind, of {changes[0]['heads']:,}: {', '.join(changed)} tokens." if changed else "",
    )
    rows = [_add_context(row) for row in draft.rows]
    x = alt.X("context:O").title("Context size, tokens").axis(labelAngle=0, format=",d", labelOverlap=True)
    tooltip = tooltips(".3~p", context=_CONTEXT, label="Kind", heads="Heads", share="Share of heads")
    chart = layer_chart(
        stack_shares(rows, "context"),
        draft.title,
        f"Stacked bars of the share of each kind of head. {told}",
        *segments(x, tooltip),
    )
    yield draft.show(
        told,
        "Heads are labelled at each query, so those near a threshold may change. The paper labels at one context size.",
        tab="By context",
        charts=(chart,),
    )
