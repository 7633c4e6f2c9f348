"""Which figures a study's report has: each joins a query, a chart and the words below it.

Holds the sections of the report in reading order. What does not belong here: how a chart is drawn (``reports.charts``),
how a finding is worded (``reports.words``), and HTML (``reports.page``).

A figure that a study has no data for keeps its place and says why it is empty.
"""

from collections.abc import Callable
from dataclasses import dataclass

import altair as alt
import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from reports import charts, words
from reports.queries import Answer, ask

NOTHING_SELECTED = "No query attends to two keys or more, so there is nothing to choose between."
NO_POSITIONS = "The warehouse holds no row by position for this study."
NO_SINK = "A sliding window hides position 0 from every head, so no head can attend to the sink."


@dataclass(frozen=True)
class Figure:
    """One figure of the report."""

    key: str
    """Unique on the page; letters, digits and hyphens."""
    title: str
    finding: str
    """What it says of this study. Without a chart: why there is none."""
    reading: str
    """What is drawn, and where in the paper its like stands."""
    chart: alt.LayerChart | None
    table: pa.Table
    """The rows behind the chart."""
    answer: Answer
    """The query that gave them."""


@dataclass(frozen=True)
class Section:
    """Figures that answer one question."""

    key: str
    title: str
    lead: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Answers:
    """Everything the figures of one study are made from."""

    curves: Answer
    heads: Answer
    sinks: Answer
    norms: Answer
    weights: Answer
    n: int
    """N of the maps."""
    asked_n: int
    """N that was asked for, which no head may reach."""
    query: int
    """Position of the query."""


def answers(connection: duckdb.DuckDBPyConnection, study: str, *, query: int, last_n: int, map_n: int) -> Answers:
    """Ask the warehouse all questions of the report.

    Parameters
    ----------
    connection
        Open warehouse; only read from.
    query
        Position of the query.
    last_n
        Largest N of the study; 0 if nothing was selected.
    map_n
        N of the maps; if it exceeds ``last_n``, the maps show ``last_n``.
    """
    n = min(map_n, last_n)
    return Answers(
        curves=ask(connection, "curves_by_n", study=study, query=query),
        heads=ask(connection, "heads_at_n", study=study, query=query, n=n),
        sinks=ask(connection, "sink_by_head", study=study, query=query),
        norms=ask(connection, "value_norm_over_heads", study=study),
        weights=ask(connection, "attention_over_heads", study=study, query=query),
        n=n,
        asked_n=map_n,
        query=query,
    )


def sections(found: Answers) -> tuple[Section, ...]:
    """The figures of the report, in reading order."""
    return (
        Section(
            "separation",
            "How well heads separate what they select",
            "Take the N keys a query attends to most and sum their weighted value states to one point. "
            "Precision: of all keys as near to it as the farthest selected one, the share that was selected. "
            "Recall: of the selected keys, the share that lies nearer than any key left out. "
            "F joins each with its counterpart, which is 1 by convention.",
            (
                _curve(found, "precision-recall", charts.precision_recall, ("precision", "recall"), "Figure 5."),
                _curve(found, "f-scores", charts.f_scores, ("f_r_max", "f_r_min"), "Definition 3, equation 4."),
            ),
        ),
        Section(
            "heads",
            "Which heads do it",
            "The same two measures at one N, head by head.",
            (_map(found, "precision", charts.precision_map), _map(found, "recall", charts.recall_map)),
        ),
        Section(
            "attention",
            "Where attention goes",
            "What the last token gives to each key: the beginning of the text, the plateau, its own neighbourhood.",
            (_attention(found),),
        ),
        Section(
            "sink",
            "What the sink does",
            "Position 0 often gets much weight without much to say: a key counts by its weight times its value state.",
            (_sinks(found), _value_norm(found)),
        ),
    )


def _missing(key: str, title: str, answer: Answer, why: str) -> Figure:
    return Figure(key, title, why, "", None, answer.table.slice(0, 0), answer)


def _sentences(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _curve(
    found: Answers, key: str, draw: Callable[..., alt.LayerChart], metrics: tuple[str, str], paper: str
) -> Figure:
    title = f"{' and '.join(words.NAMES[metric] for metric in metrics)} against N"
    table = found.curves.table.filter(pc.is_in(found.curves.table["metric"], pa.array(metrics)))
    if not table.num_rows:
        return _missing(key, title, found.curves, NOTHING_SELECTED)
    rows: list[words.Row] = table.to_pylist()
    heads = words.count(max(row["heads"] for row in rows), "head")
    return Figure(
        key,
        title,
        _sentences(*(words.course(rows, metric) for metric in metrics), words.fewer_heads(rows)),
        f"Each head is first averaged over sequences. Line: mean of {heads}; band: the middle 80 % of them. {paper}",
        draw(table, marked_n=found.n),
        table,
        found.curves,
    )


def _map(found: Answers, metric: str, draw: Callable[..., alt.LayerChart]) -> Figure:
    key, title = f"{metric}-map", f"{words.NAMES[metric]} of every head"
    table = found.heads.table.select(["layer", "head", "sequences", metric])
    rows: list[words.Row] = table.to_pylist()
    if not words.known(rows, metric):
        return _missing(key, title, found.heads, NOTHING_SELECTED)
    fallback = f"N = {found.asked_n} was asked for, but no head goes beyond N = {found.n}."
    return Figure(
        key,
        title,
        _sentences(words.extremes(rows, metric), words.blanks(rows, metric, found.n)),
        _sentences(
            "Mean over sequences; the colours span what this study shows.", fallback if found.asked_n > found.n else ""
        ),
        draw(table, n=found.n),
        table,
        found.heads,
    )


def _attention(found: Answers) -> Figure:
    key, title, table = "attention-by-position", "Attention weight by position", found.weights.table
    if not table.num_rows:
        return _missing(key, title, found.weights, NO_POSITIONS)
    return Figure(
        key,
        title,
        words.attention(table.to_pylist(), found.query),
        "Each head is first averaged over sequences. Line: mean over heads; band: the middle 80 % of them. "
        "Weights on a log axis, as in Figure 4.",
        charts.attention(table, query=found.query),
        table,
        found.weights,
    )


def _sinks(found: Answers) -> Figure:
    key, title = "sink-by-layer", "Attention on the sink by layer"
    table = found.sinks.table.select(["layer", "head", "sink_weight", "uniform_weight"])
    rows: list[words.Row] = table.to_pylist()
    if not words.known(rows, "sink_weight"):
        return _missing(key, title, found.sinks, NO_SINK)
    reading = "Each stroke is one head, averaged over sequences; each dot is the mean of its layer."
    return Figure(key, title, words.sink_by_layer(rows), reading, charts.sink_by_layer(table), table, found.sinks)


def _value_norm(found: Answers) -> Figure:
    key, title, table = "value-norm", "Norm of value states by position", found.norms.table
    if not table.num_rows:
        return _missing(key, title, found.norms, NO_POSITIONS)
    rows: list[words.Row] = table.to_pylist()
    heads = words.count(max(row["kv_heads"] for row in rows), "KV head")
    return Figure(
        key,
        title,
        words.value_norm(rows),
        f"Each KV head is first averaged over sequences. Line: mean of {heads}; band: the middle 80 % of them. "
        "Compare Figure 2 (left).",
        charts.value_norm(table),
        table,
        found.norms,
    )
