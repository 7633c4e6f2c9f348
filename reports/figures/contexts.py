"""How Precision, Recall, elbows and kinds of heads change with the size of the context."""

from reports.charts import contexts as charts
from reports.figures.parts import NOT_ANALYSED, Draft, Figure, Source, has_values
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
        return (_build_metrics(source), _build_elbows(source))
    why = ONE_QUERY if answer.table.num_rows else NOT_ANALYSED
    return (Draft("contexts-none", "Measures against context size", answer).leave_empty(why),)


def _build_metrics(source: Source) -> Figure:
    draft = Draft("context-metrics", "Precision and Recall against context size", source.ask_study("metrics_by_query"))
    if not contexts_findings.has_several_contexts(draft.rows):
        return draft.leave_empty("Fewer than two of the queries have two keys to select from.")
    metrics = ("precision", "recall")
    return draft.show(
        numbers.join_sentences(*(contexts_findings.describe_metric(draft.rows, metric) for metric in metrics)),
        "Each point is a mean over heads, each first averaged over sequences, which are the same for every size: a "
        "query selects among the tokens up to its own. Recall at N = 1 is 1 by definition and "
        f"is left out. {FLOOR} The paper measures only at 1024 tokens.",
        marks="Stronger lines: larger N; ticks: the floor N/n of Precision.",
        tab="Context size",
        charts=tuple(charts.context_metric(draft.table, metric=metric) for metric in metrics),
    )


def _build_elbows(source: Source) -> Figure:
    draft = Draft("context-elbows", "Elbow against context size", source.ask_study("elbows_by_query"))
    if not has_values(draft.table, "model_elbow_n") and not has_values(draft.table, "median_elbow_n"):
        return draft.leave_empty(source.explain_empty(contexts_findings.describe_elbows(draft.rows)))
    return draft.show(
        contexts_findings.describe_elbows(draft.rows),
        "In the paper the strongest non-trivial separability lies at N from 1 to 4, at 1024 tokens.",
        marks="Band: middle half of the heads that have an elbow.",
        tab="Context size",
        charts=(charts.context_elbows(draft.table),),
    )


def build_labels(source: Source) -> tuple[Figure, ...]:
    """Kinds of heads against the position of the query; nothing for one query."""
    answer = source.ask_study("labels_by_query")
    return (_build_labels(source),) if contexts_findings.has_several_contexts(answer.rows()) else ()


def _build_labels(source: Source) -> Figure:
    draft = Draft("context-kinds", "Kinds of heads against context size", source.ask_study("labels_by_query"))
    changes = source.ask_study("label_changes")
    return draft.show(
        contexts_findings.describe_labels(draft.rows, changes.rows()),
        "Heads are labelled at each query, so those near a threshold may change. The paper labels at one context size.",
        tab="By context",
        charts=(charts.context_labels(draft.table, changes.table),),
    )
