"""How well heads separate what they select: against chance and random weights, with bounds, head by head."""

from reports.chance import figures as chance
from reports.chance.figures import FLOOR
from reports.figures import (
    NOT_ANALYSED,
    NOTHING_SELECTED,
    Draft,
    Figure,
    Section,
    Source,
    find_shown_kappa,
    only_row,
    select_rows,
)
from reports.findings import numbers
from reports.separation import charts
from reports.separation import findings as separation_findings
from reports.separation.charts import BOUNDED

_PAPERS = {"precision": "Figure 5, left", "recall": "Figure 5, right"}
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
        numbers.join_sentences(
            "Precision is the share of selected keys among those no farther from s_N than the farthest selected one.",
            f"The model is compared with {numbers.join_words(beside)}." if beside else "",
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
    draft = Draft(f"{metric}-by-n", f"{numbers.NAMES[metric]} against N", source.ask_shown("bounds_by_n"))
    table = select_rows(draft.table, "metric", metric)
    rows = separation_findings.join_bounds(table.to_pylist(), metric)
    if not rows:
        return draft.leave_empty(NOT_ANALYSED if source.last_n else NOTHING_SELECTED)
    nulls = source.ask_query("separability_by_n").rows()
    twin = _read_twin(source)
    return draft.show(
        numbers.join_sentences(
            separation_findings.describe_curve(rows, metric),
            chance.describe_nulls(nulls, metric) if nulls else "",
            separation_findings.describe_fewer_heads(source.ask_query("curves_by_n").rows()),
        ),
        numbers.join_sentences(
            "Line: mean over heads.",
            FLOOR if metric == "precision" else "",
            _describe_settings(source) if metric in _PAPER else "",
            _describe_nulls(nulls[0], source) if nulls else "",
            f"Random weights: the study {source.twin.study}." if twin is not None and source.twin else "",
            _PAPER[metric],
        ),
        part=table,
        paper=_PAPERS[metric],
        marks=numbers.join_sentences(
            "Blue band: 95 % interval over sequences; grey: between the paper’s bounds.",
            "Dashed: the floor N/n." if metric == "precision" else "",
        ),
        tab="Precision, Recall",
        charts=(charts.metric_curves(table.to_pylist(), nulls, twin, metric=metric),),
    )


def _describe_nulls(row: numbers.Row, source: Source) -> str:
    drawn = chance.name_drawn_sequences(row, source.overview["sequences"])
    return (
        f"The nulls are drawn for {drawn}, at N on a log grid; value states of all keys but the sink and the last are "
        "shuffled."
    )


def _read_twin(source: Source) -> list[numbers.Row] | None:
    """Read the curves of the twin, if its query has the same position."""
    twin = source.twin
    return twin.ask_query("curves_by_n").rows() if twin is not None and twin.query == source.query else None


def build_bounded(source: Source, metric: str) -> Figure:
    """One metric of the whole model against N, with all its bounds (Figure 5)."""
    draft = Draft(f"{metric.replace('_', '-')}-bounds", BOUNDED[metric], source.ask_shown("bounds_by_n"))
    table = select_rows(draft.table, "metric", metric)
    rows = separation_findings.join_bounds(table.to_pylist(), metric)
    if not rows:
        return draft.leave_empty(NOT_ANALYSED if source.last_n else NOTHING_SELECTED)
    elbow = only_row(source.ask_query("elbows_model"))
    return draft.show(
        separation_findings.describe_envelope(rows, metric),
        "Line: mean over heads, each first averaged over sequences; band: its 95 % interval over sequences. "
        f"{_describe_settings(source)} {FLOOR + ' ' if metric == 'precision' else ''}{_PAPER[metric]}",
        part=table,
        marks="Diamonds: N where the mean lies outside a bound.",
        tab=numbers.NAMES[metric],
        broad=True,
        charts=(charts.metric_bounds(table.to_pylist(), metric=metric, elbow_n=elbow["elbow_n"] if elbow else None),),
    )


def _describe_settings(source: Source) -> str:
    """κ and scale of the printed bounds that are drawn."""
    row = find_shown_kappa(source.ask_query("coverage").rows())
    if row is None:
        return ""
    chosen = "the tightest tried" if row["serves_best"] else "in the middle of those tried"
    return f"Printed bounds at κ = {numbers.number(row['kappa'])}, {chosen}, in scale ‘{row['scale']}’."


def _build_elbows(source: Source) -> Figure:
    draft = Draft("elbows", "Elbow of every head", source.ask_query("elbow_by_head"))
    if not numbers.drop_nulls(draft.rows, "elbow_n"):
        why = (
            source.explain_empty(separation_findings.describe_elbows(draft.rows)) if source.last_n else NOTHING_SELECTED
        )
        return draft.leave_empty(why)
    return draft.show(
        numbers.join_sentences(
            separation_findings.describe_model_elbow(only_row(source.ask_query("elbows_model"))),
            separation_findings.describe_elbows(draft.rows),
        ),
        "The elbow of the harmonic mean of mean Precision and mean Recall is the N where it lies "
        "highest above the straight line, over log N, from N = 2 to its minimum. In the paper the strongest "
        "non-trivial separability lies at N from 1 to 4.",
        tab="Elbows",
        charts=(charts.elbows(draft.rows),),
    )


def _build_map(source: Source, metric: str) -> Figure:
    draft = Draft(f"{metric}-map", f"{numbers.NAMES[metric]} of every head", source.ask_query("heads_at_n", n=source.n))
    table = draft.table.select(["layer", "head", "sequences", metric])
    rows: list[numbers.Row] = table.to_pylist()
    if not numbers.drop_nulls(rows, metric):
        return draft.leave_empty(NOTHING_SELECTED)
    fallback = f"N = {source.asked_n} was asked for, but the largest N of any head is {source.n}."
    return draft.show(
        numbers.join_sentences(
            separation_findings.describe_extremes(rows, metric),
            separation_findings.describe_blanks(rows, metric, source.n),
        ),
        numbers.join_sentences(
            "Mean over sequences; the colours span the values of this study.",
            FLOOR if metric == "precision" else "",
            fallback if source.asked_n > source.n else "",
        ),
        part=table,
        tab="Head by head",
        charts=(charts.metric_map(rows, metric=metric, n=source.n),),
    )
