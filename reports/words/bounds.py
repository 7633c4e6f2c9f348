"""What the bounds are worth, what moves them, and how they do on data drawn from the assumptions.

What does not belong here: where the measured curves lie between them (``reports.words.separation``).
"""

from collections.abc import Sequence
from math import isinf

from reports.words.numbers import NAMES, Row, count, known, number, percent, sentences, spans


def printed(kappas: Sequence[Row]) -> list[Row]:
    """The printed family by κ (``coverage_by_kappa``)."""
    return sorted((row for row in kappas if row["family"] == "printed"), key=lambda row: row["kappa"])


def best(kappas: Sequence[Row]) -> Row | None:
    """The κ that serves best (``coverage_by_kappa``)."""
    return next((row for row in printed(kappas) if row["serves_best"]), None)


def coverage(kappas: Sequence[Row]) -> str:
    """How much the envelope covers at the κ that serves best, with what tells whether that means anything."""
    row = best(kappas)
    if row is None:
        return "No κ has an envelope to compare the means with."
    premise = (
        f"The theorems’ premise Δ > 0 holds in {percent(row['premise_share'])} of all selections"
        if row["premise_share"] is not None
        else "Whether Δ > 0 is unknown"
    )
    inside = (
        f"; the {count(row['premise_rows'], 'row')} where it holds in most sequences lie inside in "
        f"{_share(row['precision_coverage_premise'])} and {_share(row['recall_coverage_premise'])}"
        if row["premise_rows"]
        else ", and on no row in most sequences"
    )
    return sentences(
        f"Of {count(row['rows'], 'row')} (head, N), {_share(row['precision_coverage'])} lie inside for Precision and "
        f"{_share(row['recall_coverage'])} for Recall at κ = {number(row['kappa'])}, which serves best.",
        f"{premise}{inside}.",
        _scale_free(kappas),
    )


def _share(value: float | None) -> str:
    return "none" if value is None else percent(value)


def _scale_free(kappas: Sequence[Row]) -> str:
    row = next((row for row in kappas if row["family"] == "scale_free" and row["rows"]), None)
    if row is None:
        return ""
    return (
        f"The scale-free lower bound lies below {_share(row['precision_coverage'])} of the means of Precision and "
        f"{_share(row['recall_coverage'])} of those of Recall."
    )


def width(kappas: Sequence[Row]) -> str:
    """How wide the envelope is (``coverage_by_kappa``)."""
    row = best(kappas)
    if row is None or row["precision_width"] is None or row["recall_width"] is None:
        return "No κ has an envelope."
    rows = known(printed(kappas), "precision_width")
    text = (
        f"At κ = {number(row['kappa'])}, which serves best, the envelope is {number(row['precision_width'])} wide for "
        f"Precision and {number(row['recall_width'])} for Recall, on average over rows; both quantities lie between 0 "
        "and 1"
    )
    if len(rows) == 1:
        return f"{text}."
    widths = [row["precision_width"] + row["recall_width"] for row in rows]
    narrowest = rows[widths.index(min(widths))]
    return f"{text}. It is narrowest at κ = {number(narrowest['kappa'])}."


def margins(curve: Sequence[Row]) -> str:
    """How the model's mean Δ/B runs with N (``bounds_by_n``, one metric of the printed family)."""
    rows = sorted(known(curve, "margin"), key=lambda row: row["n"])
    if not rows:
        return "Δ/B is undefined at every N."
    order, positive = [row["n"] for row in rows], [row["n"] for row in rows if row["margin"] > 0]
    low = min(rows, key=lambda row: row["margin"])
    above = f"above 0 at N = {spans(positive, order)}" if positive else "above 0 at no N"
    return (
        f"Mean Δ/B is {number(rows[0]['margin'])} at N = {rows[0]['n']}, lowest with {number(low['margin'])} at "
        f"N = {low['n']}, and ends with {number(rows[-1]['margin'])} at N = {rows[-1]['n']}; it is {above}."
    )


def regimes(model: Sequence[Row], counts: Sequence[Row]) -> str:
    """Where the regimes of the model begin (``regimes_of_model``), and where heads have Δ > 0 (``regime_counts``)."""
    starts = {row["regime"]: row["first_n"] for row in known(model, "first_n")}
    found = [f"{name} = {starts[regime]}" for regime, name in _STARTS.items() if regime in starts]
    absent = [row["regime"] for row in model if row["first_n"] is None]
    positive = [
        f"{row['mostly_positive']} of {row['heads']} in {row['regime']}" for row in counts if row["regime"] != "I"
    ]
    return sentences(
        f"For the model {', '.join(found)}." if found else "",
        f"Without any N: {', '.join(absent)}." if starts and absent else "",
        f"Heads with Δ > 0 at more than half of a regime’s N: {', '.join(positive)}." if positive else "",
    )


_STARTS = {"III": "m₁", "IV": "m₂", "V": "m₃"}
"""What the paper calls the first N of a regime."""


EFFECTS = {
    "d": "d",
    "L": "L",
    "N": "N",
    "a_0": "a₀",
    "a_min_in": "a_min (in)",
    "a_max_out": "a_max (out)",
    "beta": "β",
    "eta": "η",
    "omega": "ω",
    "T_1": "T₁",
    "T_2": "T₂",
}
"""Parameters of Table 1, in its order."""


def effects(rows: Sequence[Row]) -> str:
    """How many parameters act as the paper says (``parameter_effects``)."""
    judged = known(rows, "agrees")
    if not judged:
        return "No parameter can be compared with the paper’s arrow."
    agree = [row for row in judged if row["agrees"]]
    none = [EFFECTS[row["parameter"]] for row in judged if not row["agrees"] and row["effect"] == 0]
    opposite = [EFFECTS[row["parameter"]] for row in judged if not row["agrees"] and row["effect"] not in (0, None)]
    return sentences(
        f"{len(agree)} of {count(len(judged), 'parameter')} with an arrow move the lower bounds the paper’s way.",
        f"The other way: {', '.join(opposite)}." if opposite else "",
        f"Without effect: {', '.join(none)}." if none else "",
    )


FAMILIES = {"printed": "printed", "scale_free": "scale-free", "correlated": "with correlation"}
"""Families of bounds, as they are written."""


def monte_carlo(rows: Sequence[Row]) -> str:
    """At how much of the grid each family's lower bounds hold in expectation (``monte_carlo_summary``)."""
    found = {family: [row for row in rows if row["family"] == family] for family in FAMILIES}
    return sentences(*(_in_expectation(FAMILIES[family], some) for family, some in found.items() if some))


def _in_expectation(name: str, rows: Sequence[Row]) -> str:
    """What one family's lower bounds do, over all κ and scales that it has."""
    by_kappa = ", by κ and scale" if len(rows) > 1 else ""
    met = f"; where its assumptions are met at {_holding(rows, '_meeting')}" if rows[0]["points_meeting"] else ""
    return f"Lower bounds, {name}: hold at {_holding(rows, '')}{by_kappa}{met}."


def _holding(rows: Sequence[Row], which: str) -> str:
    """From which to which share of the points inequalities hold, over the rows."""
    return " and ".join(
        f"{_range([row[f'{metric}_holds{which}'] for row in known(rows, f'{metric}_holds{which}')])} of the points for "
        f"{NAMES[metric]}"
        for metric in ("precision", "recall")
    )


def _range(shares: Sequence[float]) -> str:
    if not shares:
        return "none"
    low, high = percent(min(shares)), percent(max(shares))
    return low if low == high else f"{low} to {high}"


VERDICTS = ("holds", "fails")
"""Whether an inequality holds at a point of a grid, as the legend names it."""


def gap_points(grid: Sequence[Row], metric: str) -> list[Row]:
    """Points of a Monte Carlo grid that have a lower bound of a metric (``monte_carlo_grid``).

    Each row has ``gap`` (mean minus bound), ``verdict`` (one of ``VERDICTS``) and ``decay`` (β as text) beside its own.
    """
    return [
        {
            **row,
            "gap": row[f"{metric}_gap"],
            "verdict": VERDICTS[not row[f"{metric}_holds"]],
            "decay": "∞" if isinf(row["beta"]) else f"{row['beta']:g}",
        }
        for row in known(grid, f"{metric}_holds")
    ]


def gaps(points: Sequence[Row], title: str) -> str:
    """How often an inequality fails on a grid, and where the mean lies lowest to its bound (``gap_points``)."""
    lowest = min(points, key=lambda row: row["gap"])
    failing = sum(row["verdict"] == "fails" for row in points)
    kappa = "" if lowest["kappa"] is None else f", κ = {number(lowest['kappa'])}"
    where = f"d = {lowest['head_dim']}, {lowest['n_keys']} keys, N = {lowest['n']}, β = {lowest['decay']}{kappa}"
    side = "below" if lowest["gap"] < 0 else "above"
    return (
        f"{title}: fails at {failing} of {count(len(points), 'point')}; at worst the mean lies "
        f"{number(abs(lowest['gap']))} {side} the bound ({where})."
    )


def failures(rows: Sequence[Row]) -> str:
    """Which inequality fails worst, and whether one fails where its assumptions hold (``monte_carlo_failures``)."""
    worst = rows[0]
    metric, bound = worst["inequality"].split("_")
    side = {"lower": "below", "upper": "above"}[bound]
    meeting = [row for row in rows if row["meets_assumptions"]]
    return sentences(
        f"The worst failure: mean {NAMES[metric]} of {number(worst['mean'])} lies {number(abs(worst['gap']))} {side} "
        f"its {bound} bound of {number(worst['bound'])}.",
        f"{len(meeting)} of the {count(len(rows), 'failure')} listed by the query "
        f"{'is' if len(meeting) == 1 else 'are'} at points that meet the assumptions of the bound.",
    )
