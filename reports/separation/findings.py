"""Findings on how well heads separate: curves, bounds, maps and elbows."""

from collections.abc import Sequence
from statistics import median

from reports.findings.numbers import (
    NAMES,
    Row,
    count,
    describe_course,
    describe_range,
    drop_nulls,
    format_spans,
    join_sentences,
    number,
)

ELBOW_RANGES = ("N = 3 or 4, in the paper’s range", "beyond it")
"""Ranges of the elbow, as the legend names them; N = 1 and 2 cannot be an elbow."""

TRIVIAL = "the only N is the trivial one, N = 1"
"""Why there is no elbow if at most one key is selected (status 'trivial')."""

WITHOUT_ELBOW = {
    "no_bend": "the harmonic mean of Precision and Recall falls from N = 2 on without bending downwards",
    "no_decline": "after N = 2 the harmonic mean of Precision and Recall does not fall",
    "trivial": TRIVIAL,
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


def describe_extremes(heads: Sequence[Row], metric: str) -> str:
    """The heads in which one metric is smallest and largest (``heads_at_n``)."""
    rows = drop_nulls(heads, metric)
    middle = median(row[metric] for row in rows)
    return f"{NAMES[metric]} is {describe_range(rows, metric)}; the median is {number(middle)}."


def describe_blanks(heads: Sequence[Row], metric: str, n: int) -> str:
    """Number of blank cells of the map (``heads_at_n``); empty if none is."""
    missing = len(heads) - len(drop_nulls(heads, metric))
    return f"Blank: {count(missing, 'head')} with {n} keys or fewer." if missing else ""


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
