"""Value states: norms (Assumption 1) and similarity (Assumption 2)."""

import pyarrow.compute as pc

from reports.charts import values as charts
from reports.figures.parts import NOT_ANALYSED, Figure, Source, any_known, missing, only_row
from reports.findings import numbers
from reports.findings import values as findings

NO_POSITIONS = "The warehouse holds no rows by position for this study."


def norms(source: Source) -> tuple[Figure, ...]:
    """Assumption 1."""
    return (_value_norm(source), _variation(source))


def similarity(source: Source) -> tuple[Figure, ...]:
    """Assumption 2."""
    return (_errors(source), _of_model(source), _curves(source))


def _value_norm(source: Source) -> Figure:
    key, title = "value-norm", "Norm of value states by position"
    answer = source.of_study("value_norm_over_heads")
    if not answer.table.num_rows:
        return missing(key, title, answer, NO_POSITIONS)
    rows = answer.rows()
    heads = numbers.count(max(row["kv_heads"] for row in rows), "KV head")
    return Figure(
        key,
        title,
        findings.value_norm(rows),
        "Each KV head is first averaged over sequences. In the paper norms are level over positions except for the "
        "sink’s, which is smaller.",
        answer.table,
        answer,
        paper="Figure 2, left",
        tab="1: norms",
        marks=f"Line: mean of {heads}; band: middle 80 % of them.",
        charts=(charts.value_norm(answer.table),),
    )


def _variation(source: Source) -> Figure:
    key, title = "norm-variation", "Variation of norms over KV heads"
    answer = source.of_study("norm_variation_by_head")
    rows = answer.rows()
    if not rows:
        return missing(key, title, answer, NOT_ANALYSED)
    if not any(row["cv_of_mean_norm"] or row["cv_within_sequence"] for row in rows):
        return missing(key, title, answer, findings.norm_variation(rows))
    return Figure(
        key,
        title,
        findings.norm_variation(rows),
        "The paper finds 0.02 to 0.03 and few above 0.05, which only the mean norm over sequences can show. Its "
        "variation shrinks with the square root of their number, so it reflects how many were averaged; only the "
        "variation within a sequence shows how stable norms are.",
        answer.table,
        answer,
        paper="Figure 2, right",
        tab="1: norms",
        marks="Coefficient of variation: standard deviation over mean, over all positions but the sink’s.",
        charts=(charts.norm_variation(answer.table),),
    )


def _errors(source: Source) -> Figure:
    key, title = "similarity-errors", "Error of the exponential over KV heads"
    answer = source.of_study("similarity_fit_by_head")
    rows = answer.rows()
    if not any_known(answer.table, "mae"):
        return missing(key, title, answer, _no_fit(source))
    return Figure(
        key,
        title,
        findings.similarity_errors(rows),
        "Least-squares fits over distances of the mean cosine over sequences. In the paper the error is 0.09 on "
        "average, 0.05 to 0.10 in most heads and 0.20 to 0.25 in a few.",
        answer.table,
        answer,
        paper="Figure 3",
        tab="2: similarity",
        charts=(charts.similarity_errors(answer.table),),
    )


def _no_fit(source: Source) -> str:
    rows = source.of_study("similarity_fit_by_head").rows()
    return findings.similarity_errors(rows) if rows else NOT_ANALYSED


_WHICH = {"best": "Best fit", "median": "Median fit", "worst": "Worst fit"}


def _of_model(source: Source) -> Figure:
    key, title = "similarity-model", "Similarity against distance"
    answer = source.of_study("similarity_curves")
    table = answer.table.filter(pc.equal(answer.table["which"], "model"))
    if not any_known(table, "mean_cosine"):
        return missing(key, title, answer, _no_fit(source))
    model = only_row(source.of_study("similarity_fit_of_model"))
    return Figure(
        key,
        title,
        numbers.sentences(
            findings.similarity_curve(table.to_pylist(), "All KV heads"), findings.similarity_of_model(model)
        ),
        "Mean cosine over pairs at that distance, over sequences and over KV heads, with both fits; ± is the standard "
        "error over sequences. The fit with a floor, c + (1 − c) exp(−β k), is not from the paper. ρ_0 is the mean "
        "cosine of the sink’s value state with the others, which the paper assumes to be constant.",
        table,
        answer,
        paper="Figure 3",
        tab="2: similarity",
        charts=(charts.similarity(table, title=title, domain=_domain(answer.rows())),),
    )


def _curves(source: Source) -> Figure:
    key, title = "similarity-heads", "Similarity in single KV heads"
    answer = source.of_study("similarity_curves")
    found = {which: answer.table.filter(pc.equal(answer.table["which"], which)) for which in _WHICH}
    curves = {which: table for which, table in found.items() if any_known(table, "mean_cosine")}
    if not curves:
        return missing(key, title, answer, _no_fit(source))
    titles = {which: f"{_WHICH[which]}: {_kv_head(table.to_pylist()[0])}" for which, table in curves.items()}
    return Figure(
        key,
        title,
        numbers.sentences(
            *(findings.similarity_curve(table.to_pylist(), titles[which]) for which, table in curves.items())
        ),
        "KV heads are ranked by the mean absolute error of the exponential; the axes are the same for all. In Section "
        "3.2 of the paper the exponential follows the curves of most heads.",
        answer.table.filter(pc.not_equal(answer.table["which"], "model")),
        answer,
        paper="Figure 3",
        tab="2: similarity",
        charts=tuple(
            charts.similarity(table, title=titles[which], domain=_domain(answer.rows()))
            for which, table in curves.items()
        ),
    )


def _domain(rows: list[numbers.Row]) -> tuple[float, float]:
    """Least and largest cosine of all curves, 0 among them."""
    cosines = [row[name] for row in rows for name in ("mean_cosine", "exponential", "with_floor")]
    known = [cosine for cosine in cosines if cosine is not None]
    return min(0.0, *known), max(0.0, *known)


def _kv_head(row: numbers.Row) -> str:
    return f"layer {row['layer']}, KV head {row['kv_head']}"
