"""Labels of heads as all charts show them: one colour, shape, dash and letter each, in one order.

Holds the channels that encode the column ``label`` (``LABELS``), marks for heads, and stacked bars of shares,
so that a label looks the same on all charts. A head that meets no rule has the colour of the kind to which it is
nearest; marks of heads that meet a rule are filled, and the others are hollow, or faint as cells of a map.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from statistics import fmean

import altair as alt

from reports.findings.numbers import NAMES, Row, count, describe_course, drop_nulls, join_sentences, number, percent

KINDS = ("Retriever", "Mixer", "Reset")  # The kinds of heads, in the order of every chart and table
OTHER = "Other"  # The label of a head that meets no rule
LABELS = (*KINDS, OTHER)  # Every label, in the order of every chart and table

_NOUNS = {
    "Retriever": ("Retriever", "Retrievers"),
    "Mixer": ("Mixer", "Mixers"),
    "Reset": ("Reset head", "Reset heads"),
    OTHER: ("Other head", "Other heads"),
}
"""Nouns for one head and for several heads of a label."""


def describe_kinds(heads: Sequence[Row]) -> str:
    """Number of heads of each kind, and the agreement of sequences (``head_taxonomy``)."""
    numbers = Counter(row["label"] for row in heads)
    counts = [count(numbers[label], *_NOUNS[label]) if numbers[label] else f"no {_NOUNS[label][0]}" for label in KINDS]
    agreement, none = (percent(fmean(row[name] for row in heads)) for name in ("agreement", "other_share"))
    return join_sentences(
        f"Of {count(len(heads), 'head')}: {', '.join(counts)}.",
        _describe_others([row for row in heads if row["label"] == OTHER]),
        f"On average {agreement} of the sequences give a head its label; {none} of sequences and heads meet no rule.",
    )


def _describe_others(heads: Sequence[Row]) -> str:
    """Describe the heads that meet no rule: their number, nearest kinds, and how many have a single key."""
    if not heads:
        return "Every head meets a rule."
    nearest = Counter(row["nearest"] for row in heads)
    near = [f"{nearest[kind]:,} nearest to {kind}" for kind in KINDS if nearest[kind]]
    single = sum(row["single_key"] for row in heads)
    return join_sentences(
        f"{count(len(heads), 'head')} {'meets' if len(heads) == 1 else 'meet'} no rule"
        + (f" ({', '.join(near)})." if near else "."),
        f"In {single:,} of them one key that is neither the sink nor the last token contributes nearly all."
        if single
        else "",
    )


def describe_depths(heads: Sequence[Row]) -> str:
    """Mean layer of each kind (``head_taxonomy``)."""
    layers = {label: [row["layer"] for row in heads if row["label"] == label] for label in KINDS}
    means = {label: fmean(places) for label, places in layers.items() if places}
    if len({row["layer"] for row in heads}) == 1:
        return "With one layer there is no depth to compare."
    if not means:
        return "No head is of a kind, so there is no order to compare."
    return f"Mean layer: {', '.join(f'{label} {number(mean)}' for label, mean in means.items())}."


def describe_planes(heads: Sequence[Row]) -> str:
    """Cosine of the heads of each kind with the last token (``head_taxonomy``)."""
    rows = drop_nulls(heads, "cos_last_level")
    clauses = []
    for label in LABELS:
        own = [row for row in rows if row["label"] == label]
        if own:
            level, change = (fmean(row[name] for row in own) for name in ("cos_last_level", "cos_last_change"))
            moving = f"{'rising' if change > 0 else 'falling'} by {number(abs(change))}" if change else "not changing"
            clauses.append(f"{number(level)}, {moving}, in {count(len(own), *_NOUNS[label])}")
    hidden = len(heads) - len(rows)
    return join_sentences(
        f"cos(s, v_L) lies on average at {'; at '.join(clauses)}.",
        f"{count(hidden, 'head')} without such a cosine {'is' if hidden == 1 else 'are'} not drawn." if hidden else "",
    )


def describe_sensitivity(thresholds: Sequence[Row]) -> str:
    """The threshold on which the labels depend most, and the range of Other (``taxonomy_thresholds``)."""
    most = max(thresholds, key=_count_changed)
    if not _count_changed(most):
        text = f"No threshold changes a label of {count(most['heads'], 'head')} when it moves by 10 %."
        return f"{text} {_describe_other_range(thresholds)}"
    still = sum(not _count_changed(row) for row in thresholds)
    return join_sentences(
        f"The labels depend most on {most['threshold']}: lowering it by 10 % changes {most['changed_below']:,}, and "
        f"raising it by 10 % changes {most['changed_above']:,} of {count(most['heads'], 'label')}.",
        f"{still} of {count(len(thresholds), 'threshold')} {'changes' if still == 1 else 'change'} none."
        if still
        else "",
        _describe_other_range(thresholds),
    )


def _describe_other_range(thresholds: Sequence[Row]) -> str:
    """Describe how many sequences and heads meet no rule, as one threshold is changed."""
    low = min(thresholds, key=lambda row: row["other_least"])
    high = max(thresholds, key=lambda row: row["other_most"])
    first = "" if low["threshold"] == high["threshold"] else f" ({low['threshold']})"
    return (
        "If one threshold is halved, doubled or changed by 10 %, between "
        f"{percent(low['other_least'])}{first} and {percent(high['other_most'])} "
        f"({high['threshold']}) of all sequences and heads meet no rule."
    )


def _count_changed(row: Row) -> int:
    return max(int(row["changed_below"]), int(row["changed_above"]))


def describe_kind_curves(curves: Sequence[Row], *metrics: str) -> str:
    """Metrics of the kinds halfway, and the course of Reset heads to there (``curves_by_label``)."""
    each, resets = [], []
    ns: list[int] = sorted({row["n"] for row in curves})
    halfway = max((n for n in ns if 2 * n <= ns[-1]), default=ns[0])  # beyond it both measures tend to 1 in every head
    for metric in metrics:
        rows = [row for row in curves if row["metric"] == metric]
        means = {row["label"]: row["mean"] for row in rows if row["n"] == halfway}
        text = ", ".join(f"{number(means[label])} in {_NOUNS[label][1]}" for label in LABELS if label in means)
        each.append(f"{NAMES[metric]} is {text}")
        points = [row for row in rows if row["label"] == "Reset" and row["n"] <= halfway]
        if len(points) > 2:
            resets.append(f"{NAMES[metric]} of Reset heads {describe_course(points, 'mean')}.")
    return join_sentences(f"At N = {halfway:,}, of at most {ns[-1]:,}, {'; '.join(each)}.", *resets)


SHAPES = dict(zip(LABELS, ("triangle-up", "circle", "square", "cross"), strict=True))
DASHES = dict(zip(LABELS, ([1, 0], [8, 4], [2, 4], [9, 3, 2, 3]), strict=True))

WRITTEN = {"Retriever": "T", "Mixer": "M", "Reset": "R", OTHER: ""}
"""Letter of each kind in bars and cells; those that meet no rule, most of them, have none."""

MANY = 256  # Number of heads above which marks are smaller
FAINT = 0.22  # Opacity of a cell of a head that meets no rule
LEAST_LETTER = 0.06  # Smallest share for which a segment of a stacked bar has room for its letter
LETTERED = 16  # Largest number of bars for which segments have room for their letters


def add_nearest(rows: Sequence[Row]) -> list[Row]:
    """Rows with ``near``, a head's kind or else the nearest one, ``met``, whether it meets the rule, and ``letter``."""
    named = []
    for row in rows:
        met = row["label"] in KINDS
        near = row["label"] if met else row.get("nearest") or OTHER
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
        named["values"] = list(KINDS)
    scale = alt.Scale(domain=list(LABELS))
    return alt.Color(f"{column}:N", title=None, scale=scale, legend=named)


def near_shape() -> alt.Shape:
    """Shape of a point by ``near``."""
    scale = alt.Scale(domain=list(LABELS), range=list(SHAPES.values()))
    return alt.Shape("near:N", title=None, scale=scale, legend=alt.Legend(values=list(KINDS)))


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


def stack_shares(rows: Sequence[Row], column: str) -> list[Row]:
    """Stack the shares of the kinds in the bars of a column: ``low``, ``high``, ``middle`` and the ``letter``.

    Heads that meet no rule have no segment: they are the room that is left.
    """
    segments, tops = [], dict.fromkeys((row[column] for row in rows), 0.0)
    lettered = len(tops) <= LETTERED
    of_kinds = [row for row in rows if row["label"] in KINDS]
    for row in sorted(of_kinds, key=lambda row: KINDS.index(row["label"])):
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
    color["legend"]["values"] = list(KINDS)
    bars = base.mark_bar(style="segment").encode(
        y=y("low:Q", axis=alt.Axis(format="%")), y2=alt.Y2("high:Q"), color=color, tooltip=tooltip
    )
    return [bars, base.mark_text(style="on-large").encode(y=y("middle:Q"), text=alt.Text("letter:N"))]
