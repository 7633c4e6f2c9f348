"""How Precision, Recall, specificity, elbows and kinds of heads change with the size of the context."""

import pyarrow as pa

from reports.chance.figures import FLOOR
from reports.contexts import charts, findings
from reports.figures import NOT_ANALYSED, Draft, Figure, Source
from reports.findings import numbers

ONE_QUERY = (
    "The study has one query position, so there is one context size and nothing to compare; to compare several, list "
    "them in its settings, as in queries: [63, 127, 255, 511]."
)


def build_figures(source: Source) -> tuple[Figure, ...]:
    """Measures against the position of the query, of every query where it was measured."""
    answer = source.ask_study("labels_by_query")
    metrics, heads = _build_metrics(source), _build_heads(source)
    if findings.has_several_contexts(answer.rows()):
        return (metrics, _build_elbows(source), *heads)
    if not metrics.empty:
        return (metrics, *heads)
    why = ONE_QUERY if answer.table.num_rows else NOT_ANALYSED
    return (Draft("contexts-none", "Measures against context size", answer).leave_empty(why),)


def _build_metrics(source: Source) -> Figure:
    """Of every query by classes of context size, else of those that were chosen."""
    curves = source.ask_study("context_curves")
    every = findings.average_sequences(curves.rows(), "query", "n_keys", "metric", "n", "heads")
    answer = curves if every else source.ask_study("metrics_by_query")
    draft = Draft("context-metrics", "Precision, Recall and specificity against context size", answer)
    rows = every or draft.rows
    if not findings.has_several_contexts(rows):
        return draft.leave_empty("Fewer than two of the queries have two keys to select from.")
    slopes = findings.describe_slopes(source.ask_study("context_slopes", n=source.n).rows(), source.n)
    changes = (findings.describe_metric(rows, metric) for metric in findings.METRICS)
    queries = (
        " and all their queries that see at most so many keys and more than half of them"
        if every
        else ", which are the same for every size: a query selects among the tokens up to its own"
    )
    kept = ("n", "share") if charts.has_shares(rows) else ("n",)
    return draft.show(
        slopes or numbers.join_sentences(*changes),
        f"Each point is a mean over heads, each first averaged over sequences{queries}. "
        f"At N = 1 all are 1 by definition, and left out. {FLOOR} No null is drawn: selections at "
        "random may change with the context, too. The paper measures only at 1024 tokens.",
        part=pa.Table.from_pylist(every) if every else None,
        marks="Stronger lines: larger N, or smaller shares; rules: 95 % intervals over sequences; ticks: the floor N/n "
        "of Precision.",
        tab="Context size",
        stacked=len(kept) > 1,
        charts=tuple(
            charts.context_metric(rows, metric=metric, same=same) for metric in findings.METRICS for same in kept
        ),
    )


def _build_heads(source: Source) -> tuple[Figure, ...]:
    """The change of every head with the context, folded; nothing without every query."""
    draft = Draft(
        "context-heads", "Change of every head with the context", source.ask_study("context_slopes", n=source.n)
    )
    slopes = {metric: findings.average_slopes(draft.rows, metric) for metric in findings.METRICS}
    if not slopes["recall"]:
        return ()
    told = draft.show(
        numbers.join_sentences(
            f"With each doubling of the context at N = {source.n}:",
            *(findings.describe_heads(rows, metric) for metric, rows in slopes.items()),
        ),
        "Slopes of straight lines in the logarithm of the context, in every sequence, over all queries. "
        "About one in twenty heads that do not change has a mark.",
        marks="Blue: a rise; orange: a fall. + and −: the whole 95 % interval over sequences lies on that side of 0.",
        charts=tuple(charts.context_slopes(rows, metric=metric, n=source.n) for metric, rows in slopes.items()),
        folded=True,
    )
    return (told,)


def _build_elbows(source: Source) -> Figure:
    draft = Draft("context-elbows", "Elbow against context size", source.ask_study("elbows_by_query"))
    if not any(numbers.drop_nulls(draft.rows, column) for column in charts.ELBOWS):
        return draft.leave_empty(source.explain_empty(findings.describe_elbows(draft.rows)))
    return draft.show(
        findings.describe_elbows(draft.rows),
        "In the paper the strongest non-trivial separability lies at N from 1 to 4, at 1024 tokens.",
        marks="Band: middle half of the heads that have an elbow.",
        tab="Context size",
        charts=(charts.context_elbows(draft.rows),),
    )


def build_labels(source: Source) -> tuple[Figure, ...]:
    """Kinds of heads against the position of the query; nothing for one query."""
    draft = Draft("context-kinds", "Kinds of heads against context size", source.ask_study("labels_by_query"))
    if not findings.has_several_contexts(draft.rows):
        return ()
    changes = source.ask_study("label_changes").rows()
    figure = draft.show(
        findings.describe_labels(draft.rows, changes),
        "Heads are labelled at each query, so those near a threshold may change. The paper labels at one context size.",
        tab="By context",
        charts=(charts.context_labels(draft.rows, changes),),
    )
    return (figure,)
