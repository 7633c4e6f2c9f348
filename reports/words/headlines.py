"""The numbers that stand large at the top of a report.

What does not belong here: sentences (the other modules of this package).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from reports.words.numbers import NAMES, Row, count, known, number, percent


@dataclass(frozen=True)
class Headline:
    """One number that stands large at the top of a report."""

    label: str
    value: str
    note: str


def headlines(
    curves: Sequence[Row], heads: Sequence[Row], sinks: Sequence[Row], norms: Sequence[Row], n: int
) -> list[Headline]:
    """The numbers at the top of a report.

    From ``curves_by_n``, ``heads_at_n`` at ``n``, ``sink_by_head`` and ``norm_variation_by_head``.
    """
    return [
        _mean_at_n(heads, "precision", n),
        _mean_at_n(heads, "recall", n),
        _weakest(curves),
        _sink_weight(sinks),
        _lambda(norms) or _sink_norm(sinks),
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


def _lambda(norms: Sequence[Row]) -> Headline | None:
    """λ over KV heads; ``None`` if the study has none."""
    rows = known(norms, "lambda_sink")
    if not rows:
        return None
    value = number(median(row["lambda_sink"] for row in rows))
    return Headline(
        "Value norm of the sink", f"{value} ×", f"of the others: λ, median of {count(len(rows), 'KV head')}"
    )


def _sink_norm(sinks: Sequence[Row]) -> Headline:
    ratios = {(row["layer"], row["kv_head"]): row["norm_ratio"] for row in known(sinks, "norm_ratio")}
    if not ratios:
        return Headline("Value norm of the sink", "–", "no other position to compare it with")
    note = f"of later positions, median of {count(len(ratios), 'KV head')}"
    return Headline("Value norm of the sink", f"{number(median(ratios.values()))} ×", note)
