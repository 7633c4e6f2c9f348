"""What the numbers say, in sentences.

Holds one function per figure that turns its rows into a finding, and the writing of numbers. Every number in a sentence
comes from the rows. What does not belong here: drawing (``reports.charts``) and HTML (``reports.page``).

Rows are those of the query that each docstring names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

Row = dict[str, Any]

NAMES = {
    "precision": "Precision",
    "recall": "Recall",
    "f_r_min": "F(rₘᵢₙ)",
    "f_r_max": "F(rₘₐₓ)",
}
"""How the metrics are written."""


@dataclass(frozen=True)
class Headline:
    """One number that stands large at the top of a report."""

    label: str
    value: str
    note: str


def number(value: float) -> str:
    """Three significant digits, without an exponent where a reader expects none."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share of 1 as a percentage."""
    return f"{number(100 * share)}\u00a0%"


def count(number_of: int, noun: str, plural: str = "") -> str:
    """A number with its noun: ``1 head``, ``12 heads``."""
    return f"{number_of:,} {noun if number_of == 1 else plural or noun + 's'}"


def known(rows: Iterable[Row], column: str) -> list[Row]:
    """The rows that have a value in ``column``."""
    return [row for row in rows if row[column] is not None]


def course(curves: Sequence[Row], metric: str) -> str:
    """How one metric runs from the first N to the last (``curves_by_n``)."""
    points = sorted((row for row in curves if row["metric"] == metric), key=lambda row: row["n"])
    first, last = points[0], points[-1]
    if len(points) == 1:
        return f"{NAMES[metric]} is {number(first['mean'])} at N = {first['n']}, the only N there is."
    lowest = min(points, key=lambda row: row["mean"])
    if lowest is last:
        return f"{NAMES[metric]} falls from {_at(first)} to {_at(last)}, where it is lowest."
    if lowest is first:
        return f"{NAMES[metric]} rises from {_at(first)}, where it is lowest, to {_at(last)}."
    return f"{NAMES[metric]} falls from {_at(first)} to {_at(lowest)}, its lowest, and ends with {_at(last)}."


def _at(point: Row) -> str:
    return f"{number(point['mean'])} at N = {point['n']}"


def fewer_heads(curves: Sequence[Row]) -> str:
    """Say where the number of heads behind a curve changes (``curves_by_n``); empty if it does not."""
    most, least = max(row["heads"] for row in curves), min(row["heads"] for row in curves)
    if most == least:
        return ""
    full = max(row["n"] for row in curves if row["heads"] == most)
    return (
        f"A sliding window limits what some heads attend to: beyond N = {full} the curves hold fewer heads, "
        f"{least} instead of {most} at the end."
    )


def extremes(heads: Sequence[Row], metric: str) -> str:
    """Where on the map one metric is smallest and largest (``heads_at_n``)."""
    rows = known(heads, metric)
    if len(rows) == 1:
        return f"{NAMES[metric]} of the only head is {number(rows[0][metric])}."
    low, high = min(rows, key=lambda row: row[metric]), max(rows, key=lambda row: row[metric])
    middle = median(row[metric] for row in rows)
    return (
        f"{NAMES[metric]} reaches from {number(low[metric])} ({place(low)}) to {number(high[metric])} ({place(high)}); "
        f"the median is {number(middle)}."
    )


def blanks(heads: Sequence[Row], metric: str, n: int) -> str:
    """Say how many cells of the map are blank (``heads_at_n``); empty if none is."""
    missing = len(heads) - len(known(heads, metric))
    return f"Blank: {count(missing, 'head')} with {n} keys or fewer." if missing else ""


def place(row: Row) -> str:
    """Which head a row is about."""
    return f"layer {row['layer']}, head {row['head']}"


def value_norm(norms: Sequence[Row]) -> str:
    """How the sink's value norm compares with the others (``value_norm_over_heads``)."""
    sink = [row["mean"] for row in norms if row["first_position"] == 0]
    others = [
        row["mean"]
        for row in norms
        if row["first_position"] > 0
        for _ in range(row["first_position"], row["last_position"] + 1)
    ]
    if not sink or not others:
        return "There is only one position, so nothing to compare it with."
    middle = median(others)
    finding = f"The mean norm is {number(sink[0])} at position 0 and {number(middle)} at the median of later positions"
    return f"{finding}: the sink has {number(sink[0] / middle)} times the usual norm." if middle else f"{finding}."


def attention(weights: Sequence[Row], query: int) -> str:
    """What the sink and the query's own position get (``attention_over_heads``)."""
    own = [row["mean"] for row in weights if row["last_position"] == query]
    itself = f"its own position ({query}) {percent(own[0])}" if own else "its own position nothing"
    sink = next((row for row in weights if row["first_position"] == 0), None)
    if sink is None:
        return f"No head sees position 0: a sliding window hides it from all. The query gives {itself}."
    heads = max(row["heads"] for row in weights)
    some = "" if sink["heads"] == heads else f" from the {count(sink['heads'], 'head')} of {heads} that see it"
    return f"On average position 0 gets {percent(sink['mean'])} of the query's attention{some}, and {itself}."


def sink_by_layer(sinks: Sequence[Row]) -> str:
    """Which layers and heads lean on the sink most (``sink_by_head``)."""
    rows = known(sinks, "sink_weight")
    strongest = max(rows, key=lambda row: row["sink_weight"])
    finding = f"The head that gives position 0 most is {place(strongest)}, with {percent(strongest['sink_weight'])}"
    layers = {row["layer"]: fmean(r["sink_weight"] for r in rows if r["layer"] == row["layer"]) for row in rows}
    if len(layers) > 1:
        low, high = min(layers, key=layers.__getitem__), max(layers, key=layers.__getitem__)
        finding += (
            f"; layer means lie between {percent(layers[low])} (layer {low}) and {percent(layers[high])} (layer {high})"
        )
    hidden = len(sinks) - len(rows)
    return f"{finding}. A sliding window hides position 0 from {count(hidden, 'head')}." if hidden else f"{finding}."


def headlines(curves: Sequence[Row], heads: Sequence[Row], sinks: Sequence[Row], n: int) -> list[Headline]:
    """The numbers at the top of a report (``curves_by_n``, ``heads_at_n`` at ``n``, ``sink_by_head``)."""
    return [
        _mean_at_n(heads, "precision", n),
        _mean_at_n(heads, "recall", n),
        _weakest(curves),
        _sink_weight(sinks),
        _sink_norm(sinks),
    ]


def _mean_at_n(heads: Sequence[Row], metric: str, n: int) -> Headline:
    rows = known(heads, metric)
    if not rows:
        return Headline(NAMES[metric], "–", "no head attends to two keys")
    value = fmean(row[metric] for row in rows)
    return Headline(f"{NAMES[metric]} at N = {n}", number(value), f"mean of {count(len(rows), 'head')}")


def _weakest(curves: Sequence[Row]) -> Headline:
    rows = [row for row in curves if row["metric"] == "f_r_max"]
    if not rows:
        return Headline("Weakest separation", "–", "no head attends to two keys")
    lowest = min(rows, key=lambda row: row["mean"])
    return Headline(
        "Weakest separation", f"N = {lowest['n']}", f"where mean {NAMES['f_r_max']} is {number(lowest['mean'])}"
    )


def _sink_weight(sinks: Sequence[Row]) -> Headline:
    rows = known(sinks, "sink_weight")
    if not rows:
        return Headline("Attention on the sink", "–", "hidden by a sliding window")
    weight, uniform = fmean(row["sink_weight"] for row in rows), fmean(row["uniform_weight"] for row in rows)
    return Headline("Attention on the sink", percent(weight), f"{number(weight / uniform)} times the uniform share")


def _sink_norm(sinks: Sequence[Row]) -> Headline:
    ratios = {(row["layer"], row["kv_head"]): row["norm_ratio"] for row in known(sinks, "norm_ratio")}
    if not ratios:
        return Headline("Value norm of the sink", "–", "no other position to compare it with")
    note = f"of later positions, median of {count(len(ratios), 'KV head')}"
    return Headline("Value norm of the sink", f"{number(median(ratios.values()))} ×", note)
