"""Whether heads separate what they select better than chance."""

from reports.chance import charts, findings
from reports.figures import NOTHING_SELECTED, Draft, Figure, Source
from reports.findings import numbers

_NO_NULLS = "The study draws no nulls, or was landed by an earlier version: set analysis.nulls and run it again."

_DRAWN = ("auc", "specificity")
"""Measures that are drawn here: Precision and Recall have figures of their own."""


def build_figures(source: Source) -> tuple[Figure, ...]:
    """Measures of the whole model compared with nulls."""
    return (_build_model(source), _build_curves(source))


def _build_model(source: Source) -> Figure:
    draft = Draft("chance-by-n", "Measures without a floor, against chance", source.ask_query("separability_by_n"))
    if not draft.rows:
        return draft.leave_empty(_explain_absence(source))
    first = draft.rows[0]
    return draft.show(
        numbers.join_sentences(*(findings.describe_nulls(draft.rows, measure) for measure in _DRAWN)),
        f"Mean over heads and {findings.name_drawn_sequences(first, source.overview['sequences'])}, with "
        f"{numbers.count(first['draws'], 'draw')} of each null. Shuffled value states show what the weights alone "
        "give. The paper draws no such figure and compares with no null.",
        marks="AUC: probability that a selected key is nearer to s_N than one left out. Specificity: share of the keys "
        "left out that lie beyond r_max. Band around a null: where the model does not differ from it.",
        charts=tuple(charts.chance(draft.table, measure=measure) for measure in _DRAWN),
        titled=True,
        tab="AUC, specificity",
    )


def build_heads(source: Source) -> Figure:
    """AUC of every head at one N, compared with both nulls."""
    draft = Draft(
        "chance-heads",
        f"AUC against chance at N = {source.n}, head by head",
        source.ask_query("separability_at_n", measure="auc", n=source.n),
    )
    if not draft.rows:
        return draft.leave_empty(_explain_absence(source))
    return draft.show(
        numbers.join_sentences(*(findings.describe_heads(draft.rows, null) for null in findings.NULLS)),
        "About one in twenty heads that do not differ from chance has a mark. The paper draws no such figure.",
        marks="Blue: AUC above chance; orange: below. + and −: the whole 95 % interval over sequences lies on that "
        "side of 0.",
        tab="Head by head",
        charts=tuple(charts.chance_map(draft.table, null=null) for null in findings.NULLS),
        titled=True,
    )


def _build_curves(source: Source) -> Figure:
    draft = Draft("separation-curves", "Recall over all radii", source.ask_query("separation_curves"))
    if not draft.table.num_rows:
        return draft.leave_empty(_explain_absence(source))
    return draft.show(
        findings.describe_radii(draft.rows),
        "Share of the selected keys inside the ball of radius r around s_N (R(r, N), equations 3 and 32 of the paper) "
        "against the share of the other keys inside it, as r grows; AUC is the area under the curve. Heads with the "
        "highest, median and lowest mean AUC at N = 4.",
        tab="Over all radii",
        broad=True,
        charts=(charts.separation_curves(draft.table),),
    )


def _explain_absence(source: Source) -> str:
    return _NO_NULLS if source.last_n else NOTHING_SELECTED
