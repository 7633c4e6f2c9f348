"""How well heads separate what they select: curves with bounds, elbows, the spread over heads, maps."""

from collections.abc import Callable

import altair as alt
import pyarrow.compute as pc

from reports import charts, words
from reports.charts.separation import BOUNDED
from reports.figures.parts import (
    NOT_ANALYSED,
    NOTHING_SELECTED,
    Figure,
    Section,
    Source,
    any_known,
    missing,
    only_row,
)

FLOOR = (
    "Precision is never below N/n, the share of the keys that is selected (dashed), and so rises towards 1 by itself."
)
"""What must be known of Precision wherever it is drawn."""

_PAPER = {
    "precision": (
        "Theorem 1 (equations 12 and 13). Figure 5 (left): in the paper the mean lies within the bounds, is highest "
        "for N from 1 to 4, and is weakest at intermediate N."
    ),
    "recall": (
        "Theorem 2 (equations 14 and 15). Figure 5 (right): in the paper the mean lies within the bounds and keeps "
        "near the upper one for moderate N; the lower one is 0 from small N on."
    ),
    "f_r_max": "Corollary 1 (equation 17), from the bounds of Precision; the paper draws no such figure.",
    "f_r_min": "Corollary 1 (equation 16), from the bounds of Recall; the paper draws no such figure.",
}
"""Where bounds stand in the paper, and what it found."""


def separation(source: Source) -> Section:
    """Means of the model against N, with the bounds."""
    return Section(
        "separation",
        "How well heads separate what they select",
        "Take the N keys a query attends to most and sum their weighted value states to one point. "
        "Precision: of all keys as near to it as the farthest selected one, the share that was selected. "
        "Recall: of the selected keys, the share that lies nearer than any key left out. "
        "F joins each with its counterpart, which is 1 by convention.",
        tuple(bounded(source, metric) for metric in _PAPER),
    )


def heads(source: Source) -> Section:
    """The spread over heads, their elbows, and each head at one N."""
    return Section(
        "heads",
        "Which heads do it",
        "The same measures head by head: how far heads differ at every N, where each has its elbow, and which they "
        "are at one N.",
        (
            _spread(source),
            _elbows(source),
            _map(source, "precision", charts.precision_map),
            _map(source, "recall", charts.recall_map),
        ),
    )


def bounded(source: Source, metric: str) -> Figure:
    """One metric of the whole model against N, with its bounds (Figure 5)."""
    key, title = f"{metric.replace('_', '-')}-bounds", BOUNDED[metric]
    answer = source.of_query("bounds_by_n")
    table = answer.table.filter(pc.equal(answer.table["metric"], metric))
    rows = words.beside_bounds(table.to_pylist(), metric)
    if not rows:
        return missing(key, title, answer, NOT_ANALYSED if source.last_n else NOTHING_SELECTED)
    elbow = only_row(source.of_query("elbow_of_model"))
    return Figure(
        key,
        title,
        words.sentences(words.course(rows, metric), words.envelope(rows, metric)),
        f"Line: mean over heads, each first averaged over sequences; band: its 95 % bootstrap interval over sequences. "
        f"Diamonds: N where the mean lies outside a bound. {_settings(source)} "
        f"{FLOOR + ' ' if metric == 'precision' else ''}{_PAPER[metric]}",
        table,
        answer,
        charts=(charts.bounded(table, metric=metric, elbow_n=elbow["elbow_n"] if elbow else None),),
    )


def _settings(source: Source) -> str:
    """κ and scale of the printed bounds that are drawn."""
    row = words.best(source.of_query("coverage_by_kappa").rows())
    if row is None:
        return ""
    return f"Printed bounds at κ = {words.number(row['kappa'])}, which serves best, in scale ‘{row['scale']}’."


def _elbows(source: Source) -> Figure:
    key, title, answer = "elbows", "Elbow of every head", source.of_query("elbow_by_head")
    rows = answer.rows()
    if not any_known(answer.table, "elbow_n"):
        why = source.unless_old(words.elbows(rows)) if source.last_n else NOTHING_SELECTED
        return missing(key, title, answer, why)
    return Figure(
        key,
        title,
        words.sentences(words.elbow_of_model(only_row(source.of_query("elbow_of_model"))), words.elbows(rows)),
        "Separability is the harmonic mean of mean Precision and mean Recall. The elbow is the N where it lies "
        "highest above the straight line, over log N, from N = 2 to its lowest; N = 1 is trivial. Figure 5: in the "
        "paper the strongest separability that is not trivial lies at N from 1 to 4.",
        answer.table,
        answer,
        charts=(charts.elbows(answer.table),),
    )


def _spread(source: Source) -> Figure:
    key, title, answer = "precision-recall", "Precision and Recall over heads", source.of_query("curves_by_n")
    metrics = ("precision", "recall")
    table = answer.table.filter(pc.or_(*(pc.equal(answer.table["metric"], metric) for metric in metrics)))
    if not table.num_rows:
        return missing(key, title, answer, NOTHING_SELECTED)
    rows: list[words.Row] = table.to_pylist()
    heads = words.count(max(row["heads"] for row in rows), "head")
    return Figure(
        key,
        title,
        words.sentences(*(words.course(rows, metric) for metric in metrics), words.fewer_heads(rows)),
        f"Each head is first averaged over sequences. Line: mean of {heads}; band: the middle 80 % of them. {FLOOR}",
        table,
        answer,
        charts=(charts.precision_recall(table, marked_n=source.n),),
    )


def _map(source: Source, metric: str, draw: Callable[..., alt.LayerChart]) -> Figure:
    key, title = f"{metric}-map", f"{words.NAMES[metric]} of every head"
    answer = source.of_query("heads_at_n", n=source.n)
    table = answer.table.select(["layer", "head", "sequences", metric])
    rows: list[words.Row] = table.to_pylist()
    if not words.known(rows, metric):
        return missing(key, title, answer, NOTHING_SELECTED)
    fallback = f"N = {source.asked_n} was asked for, but no head goes beyond N = {source.n}."
    return Figure(
        key,
        title,
        words.sentences(words.extremes(rows, metric), words.blanks(rows, metric, source.n)),
        words.sentences(
            "Mean over sequences; the colours span what this study shows.",
            FLOOR.replace(" (dashed)", "") if metric == "precision" else "",
            fallback if source.asked_n > source.n else "",
        ),
        table,
        answer,
        charts=(draw(table, n=source.n),),
    )
