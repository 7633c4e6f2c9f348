"""Value states: norms (Assumption 1) and similarity (Assumption 2)."""

from reports.charts import values as charts
from reports.figures.parts import NOT_ANALYSED, Draft, Figure, Source, has_values, only_row, select_rows
from reports.findings import numbers
from reports.findings import values as findings

NO_POSITIONS = "The warehouse holds no rows by position for this study."


def build_norms(source: Source) -> tuple[Figure, ...]:
    """Assumption 1."""
    return (_build_value_norm(source), _build_variation(source))


def build_similarity(source: Source) -> tuple[Figure, ...]:
    """Assumption 2."""
    return (_build_errors(source), _build_model(source), _build_curves(source))


def _build_value_norm(source: Source) -> Figure:
    draft = Draft("value-norm", "Norm of value states by position", source.ask_study("value_norm_over_heads"))
    if not draft.table.num_rows:
        return draft.leave_empty(NO_POSITIONS)
    heads = numbers.count(max(row["kv_heads"] for row in draft.rows), "KV head")
    return draft.show(
        findings.describe_value_norm(draft.rows),
        "Each KV head is first averaged over sequences. In the paper norms are level over positions except for the "
        "sink’s, which is smaller.",
        paper="Figure 2, left",
        tab="1: norms",
        marks=f"Line: mean of {heads}; band: middle 80 % of them.",
        charts=(charts.value_norm(draft.table),),
    )


def _build_variation(source: Source) -> Figure:
    draft = Draft("norm-variation", "Variation of norms over KV heads", source.ask_study("norm_variation_by_head"))
    rows = draft.rows
    if not rows:
        return draft.leave_empty(NOT_ANALYSED)
    if not any(row["cv_of_mean_norm"] or row["cv_within_sequence"] for row in rows):
        return draft.leave_empty(findings.describe_norm_variation(rows))
    return draft.show(
        findings.describe_norm_variation(rows),
        "Coefficient of variation: standard deviation over mean, over all positions but the sink’s. "
        "The paper finds 0.02 to 0.03 and few above 0.05, which only the mean norm over sequences can show. Its "
        "variation shrinks with the square root of their number, so it reflects how many were averaged; only the "
        "variation within a sequence shows how stable norms are.",
        paper="Figure 2, right",
        tab="1: norms",
        charts=(charts.norm_variation(draft.table),),
    )


def _build_errors(source: Source) -> Figure:
    draft = Draft(
        "similarity-errors", "Error of the exponential over KV heads", source.ask_study("similarity_fit_by_head")
    )
    if not has_values(draft.table, "mae"):
        return draft.leave_empty(_explain_no_fit(source))
    return draft.show(
        findings.describe_similarity_errors(draft.rows),
        "Least-squares fits over distances of the mean cosine over sequences. In the paper the error is 0.09 on "
        "average, 0.05 to 0.10 in most heads and 0.20 to 0.25 in a few.",
        paper="Figure 3",
        tab="2: similarity",
        charts=(charts.similarity_errors(draft.table),),
    )


def _explain_no_fit(source: Source) -> str:
    rows = source.ask_study("similarity_fit_by_head").rows()
    return findings.describe_similarity_errors(rows) if rows else NOT_ANALYSED


_WHICH = {"best": "Best fit", "median": "Median fit", "worst": "Worst fit"}


def _build_model(source: Source) -> Figure:
    draft = Draft("similarity-model", "Similarity against distance", source.ask_study("similarity_curves"))
    table = select_rows(draft.table, "which", "model")
    if not has_values(table, "mean_cosine"):
        return draft.leave_empty(_explain_no_fit(source))
    model = only_row(source.ask_study("assumption_similarity_model"))
    return draft.show(
        numbers.join_sentences(
            findings.describe_similarity_curve(table.to_pylist(), "All KV heads"),
            findings.describe_model_similarity(model),
        ),
        "Mean cosine over pairs at that distance, over sequences and over KV heads, with both fits; in brackets: "
        "95 % intervals over sequences. The fit with a floor, c + (1 − c) exp(−β k), is not from the paper. ρ_0 is the "
        "mean cosine of the sink’s value state with the others, which the paper assumes to be constant.",
        part=table,
        paper="Figure 3",
        tab="2: similarity",
        charts=(
            charts.similarity(table, title=draft.title, domain=numbers.find_span(draft.rows, charts.SIMILARITIES)),
        ),
    )


def _build_curves(source: Source) -> Figure:
    draft = Draft("similarity-heads", "Similarity in single KV heads", source.ask_study("similarity_curves"))
    tables = {which: select_rows(draft.table, "which", which) for which in _WHICH}
    known = {which: table for which, table in tables.items() if has_values(table, "mean_cosine")}
    if not known:
        return draft.leave_empty(_explain_no_fit(source))
    names = {_name_kv_head(table.to_pylist()[0]): which for which, table in reversed(known.items())}
    curves = {which: table for which, table in known.items() if which in names.values()}  # each KV head once
    titles = {which: f"{_WHICH[which]}: {name}" for name, which in names.items()}
    return draft.show(
        numbers.join_sentences(
            *(findings.describe_similarity_curve(table.to_pylist(), titles[which]) for which, table in curves.items())
        ),
        "KV heads are ranked by the mean absolute error of the exponential; the axes are the same for all. In Section "
        "3.2 of the paper the exponential follows the curves of most heads.",
        part=select_rows(draft.table, "which", *_WHICH),
        paper="Figure 3",
        tab="2: similarity",
        charts=tuple(
            charts.similarity(table, title=titles[which], domain=numbers.find_span(draft.rows, charts.SIMILARITIES))
            for which, table in curves.items()
        ),
    )


def _name_kv_head(row: numbers.Row) -> str:
    return f"layer {row['layer']}, KV head {row['kv_head']}"
