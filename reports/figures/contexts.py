"""How Precision, Recall, elbows and kinds of heads change with the size of the context."""

from reports.charts import contexts as charts
from reports.figures.parts import NOT_ANALYSED, Figure, Source, has_values, make_empty_figure
from reports.figures.separation import FLOOR
from reports.findings import contexts as contexts_findings
from reports.findings import numbers

ONE_QUERY = (
    "The study has one query position, so there is one context size and nothing to compare; to compare several, list "
    "them in its settings, as in queries: [63, 127, 255, 511]."
)


def build_figures(source: Source) -> tuple[Figure, ...]:
    """Measures against the position of the query."""
    answer = source.ask_study("labels_by_query")
    if contexts_findings.has_several_contexts(answer.rows()):
        return (_build_metrics(source), _build_elbows(source), _build_labels(source))
    why = ONE_QUERY if answer.table.num_rows else NOT_ANALYSED
    return (make_empty_figure("contexts-none", "Measures against context size", answer, why),)


def _build_metrics(source: Source) -> Figure:
    key, title = "context-metrics", "Precision and Recall against context size"
    answer = source.ask_study("metrics_by_query")
    rows = answer.rows()
    if not contexts_findings.has_several_contexts(rows):
        return make_empty_figure(key, title, answer, "Fewer than two of the queries have two keys to select from.")
    metrics = ("precision", "recall")
    return Figure(
        key,
        title,
        numbers.join_sentences(*(contexts_findings.describe_metric(rows, metric) for metric in metrics)),
        "Each point is a mean over heads, each first averaged over sequences, which are the same for every size: a "
        "query selects among the tokens up to its own. Recall at N = 1 is 1 by definition and "
        "is left out. A change is clear if the 95 % intervals over sequences of both sizes do not overlap. "
        f"{FLOOR} The paper measures only at 1024 tokens.",
        answer,
        marks="Stronger lines: larger N; ticks: the floor N/n of Precision.",
        tab="Context size",
        charts=tuple(charts.context_metric(answer.table, metric=metric) for metric in metrics),
    )


def _build_elbows(source: Source) -> Figure:
    key, title, answer = "context-elbows", "Elbow against context size", source.ask_study("elbows_by_query")
    if not has_values(answer.table, "model_elbow_n") and not has_values(answer.table, "median_elbow_n"):
        return make_empty_figure(
            key, title, answer, source.explain_empty(contexts_findings.describe_elbows(answer.rows()))
        )
    return Figure(
        key,
        title,
        contexts_findings.describe_elbows(answer.rows()),
        "In the paper the strongest non-trivial separability lies at N from 1 to 4, at 1024 tokens.",
        answer,
        marks="Band: middle half of the heads that have an elbow.",
        tab="Elbows, kinds by context",
        charts=(charts.context_elbows(answer.table),),
    )


def _build_labels(source: Source) -> Figure:
    key, title, answer = "context-kinds", "Kinds of heads against context size", source.ask_study("labels_by_query")
    changes = source.ask_study("label_changes")
    return Figure(
        key,
        title,
        contexts_findings.describe_labels(answer.rows(), changes.rows()),
        "Heads are labelled at each query, so those near a threshold may change. The paper labels at one context size.",
        answer,
        tab="Elbows, kinds by context",
        charts=(charts.context_labels(answer.table, changes.table),),
    )
