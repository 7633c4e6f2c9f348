"""Whether heads separate what they select better than chance, and what exact counts are worth."""

import pyarrow.compute as pc

from reports import charts, listings, words
from reports.figures.parts import NOTHING_SELECTED, Figure, Section, Source, missing

_NO_NULLS = "The study draws no nulls, or an earlier version landed it: set analysis.nulls and run it again."

_DRAWN = ("auc", "specificity", "recall")
"""Measures that are drawn: Precision has a floor that rises with N."""


def section(source: Source) -> Section:
    """Measures beside nulls, and plain arithmetic."""
    return Section(
        "chance",
        "More than chance?",
        "Any N keys have some Precision, Recall and AUC (how likely a selected key is nearer to s than one left out), "
        "since each of them is part of s. So the measures are held against two nulls: N keys at random, and the "
        "same weights with the value states shuffled among all keys but the sink and the last, which leaves what "
        "the weights alone give.",
        (_of_model(source), _of_heads(source), _curves(source), _arithmetic(source)),
    )


def _of_model(source: Source) -> Figure:
    key, title, answer = "chance-by-n", "More than chance, by N", source.of_query("separability_by_n")
    rows = answer.rows()
    if not rows:
        return missing(key, title, answer, _why_not(source))
    first = rows[0]
    return Figure(
        key,
        title,
        words.sentences(*(words.beside_nulls(rows, measure) for measure in _DRAWN)),
        f"Mean over heads and the first {words.count(first['sequences'], 'sequence')}, with "
        f"{words.count(first['draws'], 'draw')} of each null. Band: around each null, where the selections would not "
        "differ from it clearly (95 % interval of the difference over sequences and KV groups). The paper draws no "
        "such figure, and compares with no null.",
        answer.table,
        answer,
        charts=tuple(charts.chance(answer.table, measure=measure) for measure in _DRAWN),
        titled=True,
    )


def _of_heads(source: Source) -> Figure:
    key, title = "chance-heads", "More than chance, head by head"
    answer = source.of_query("separability_at_n", n=source.n)
    rows = answer.rows()
    if not rows:
        return missing(key, title, answer, _why_not(source))
    return Figure(
        key,
        title,
        words.sentences(*(words.heads_beside_nulls(rows, null) for null in words.NULLS)),
        "Blue: AUC is higher than by chance, orange: lower. + and −: the whole 95 % interval over sequences lies on "
        "that side of 0; of heads that do not differ from chance, about one in twenty has a mark. The paper draws no "
        "such figure.",
        answer.table,
        answer,
        charts=tuple(charts.chance_map(answer.table, null=null) for null in words.NULLS),
        titled=True,
    )


def _curves(source: Source) -> Figure:
    key, title, answer = "separation-curves", "Recall over all radii", source.of_query("separation_curves")
    if not answer.table.num_rows:
        return missing(key, title, answer, _why_not(source))
    largest = answer.table.filter(pc.equal(answer.table["n"], pc.max(answer.table["n"])))
    return Figure(
        key,
        title,
        words.over_radii(largest.to_pylist()),
        "As the ball around s grows, how much of the selected keys it holds (R(r, N), equations 3 and 32 of the paper) "
        "against how much of the others; AUC is the area under the curve. Heads of highest, median and lowest mean AUC "
        "at N = 4.",
        answer.table,
        answer,
        charts=(charts.separation_curves(largest),),
        titled=True,
    )


def _arithmetic(source: Source) -> Figure:
    key, title, answer = "plain-arithmetic", "What ‘exact’ means", source.of_study("arithmetic")
    rows = answer.rows()
    if not rows:
        return missing(key, title, answer, NOTHING_SELECTED if not source.last_n else source.unless_old(_NO_NULLS))
    first = rows[0]
    return Figure(
        key,
        title,
        words.plain_arithmetic(rows),
        "Counts on this page are exact on the float32 tensors that are stored: keys are ordered by ‖y‖² − 2⟨s, y⟩, "
        "ties included. Distances ‖s − y‖ as the formulas stand lose the difference between keys in ‖s‖², which all of "
        "them share; a figure that was published from such distances, the paper’s included, may differ by as much. "
        f"Of {words.count(first['heads'], 'head')} and {words.count(first['sequences'], 'sequence')}.",
        answer.table,
        answer,
        listing=listings.arithmetic(rows),
    )


def _why_not(source: Source) -> str:
    return _NO_NULLS if source.last_n else NOTHING_SELECTED
