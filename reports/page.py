"""One self-contained HTML page per study.

Holds the assembling of the page and its atomic writing. What does not belong here: which figures there are
(``reports.figures``), their drawing (``reports.charts``), and the look (``reports.theme``, ``reports/templates``).

Tokens, names and provenance are untrusted: they reach the page through Jinja's escaping or ``browser.safe_json`` only.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
import jinja2
import pyarrow as pa

from reports import browser, theme, words
from reports.figures import Figure, Section, Source, sections
from reports.queries import Parameter, ask
from storage.errors import UserError

TEXTS, TOKENS = 24, 48
"""At most so many sequences are shown, with at most so many of their first tokens."""


EXAMPLES = {
    "Precision and Recall of the whole model at a few N": (
        "SELECT n, avg(precision) AS precision, avg(recall) AS recall FROM selection "
        "WHERE study = $study AND n IN (1, 2, 4, 8, 16, 32, 64) GROUP BY n ORDER BY n"
    ),
    "The ten heads that lean on the sink most": (
        "SELECT layer, head, mean_weight FROM attention_by_position "
        "WHERE study = $study AND position = 0 ORDER BY mean_weight DESC LIMIT 10"
    ),
    "One head, sequence by sequence": (
        "SELECT sequence, n, k_in, k_out, precision, recall, norm_s, cos_sink FROM selection "
        "WHERE study = $study AND layer = 0 AND head = 0 AND n <= 4 ORDER BY sequence, n"
    ),
    "The paper's lower bounds at another κ, in the scale it prints": (
        "SELECT n, avg(margin) AS margin, avg(precision_lower) AS precision_lower, avg(recall_lower) AS recall_lower "
        "FROM lower_bounds(2.5, 'raw') WHERE study = $study AND n <= 8 GROUP BY n ORDER BY n"
    ),
    "Where a mean lies outside its bounds": (
        "SELECT layer, head, n, family, kappa, precision, precision_lower, precision_upper FROM bounds_comparison "
        "WHERE study = $study AND NOT precision_inside ORDER BY ALL LIMIT 20"
    ),
    "What columns there are, and what they mean": (
        "SELECT table_name, column_name, comment FROM duckdb_columns() "
        "WHERE comment IS NOT NULL ORDER BY table_name, column_index"
    ),
}
"""Questions a reader may have, with the SQL that answers them."""


@dataclass(frozen=True)
class ReportSummary:
    """What was written."""

    path: Path
    bytes: int
    charts: int
    """Number of charts drawn; a figure may have none, or several."""


def write_report(connection: duckdb.DuckDBPyConnection, study: str, path: Path, *, map_n: int) -> ReportSummary:
    """Write the report of a study, whole or not at all; a report that stands at ``path`` is replaced.

    Parameters
    ----------
    connection
        Open warehouse; only read from.
    study
        Name of the study.
    path
        The HTML file; its folder is made.
    map_n
        N of the maps of Precision and Recall, at least 1. Beyond the largest N of the study the maps show that one.

    Raises
    ------
    UserError
        If the warehouse holds nothing of the study, or the file cannot be written.
    ValueError
        If ``map_n`` is below 1.
    """
    if map_n < 1:
        msg = f"map_n must be at least 1, not {map_n}"
        raise ValueError(msg)
    overview = ask(connection, "study_overview", study=study).rows()
    if not overview:
        msg = f"The warehouse holds nothing of the study '{study}'; run it first: attention-geometry run {study}"
        raise UserError(msg)
    row = overview[0]
    source = Source(connection, study, query=row["query"] or 0, last_n=row["last_n"] or 0, asked_n=map_n)
    parts = sections(source)
    html = _render(row, parts, headlines=_headlines(source), texts=_texts(connection, study))
    return ReportSummary(path, _replace(path, html), sum(len(figure.charts) for figure in _figures(parts)))


def _headlines(source: Source) -> list[words.Headline]:
    curves, heads = source.of_query("curves_by_n").rows(), source.of_query("heads_at_n", n=source.n).rows()
    sinks, norms = source.of_query("sink_by_head").rows(), source.of_study("norm_variation_by_head").rows()
    return words.headlines(curves, heads, sinks, norms, source.n)


def _figures(parts: tuple[Section, ...]) -> Iterator[Figure]:
    for part in parts:
        yield from part.figures


def _texts(connection: duckdb.DuckDBPyConnection, study: str) -> list[tuple[int, list[words.Row]]]:
    """The first tokens of the first sequences: (sequence, tokens)."""
    rows = ask(connection, "opening_tokens", study=study, sequences=TEXTS, positions=TOKENS).rows()
    return [(sequence, list(tokens)) for sequence, tokens in groupby(rows, key=lambda row: row["sequence"])]


def _render(study: words.Row, parts: tuple[Section, ...], **context: Any) -> str:
    """The page as text."""
    folder = files(__package__) / "templates"
    script = (folder / "report.js").read_text(encoding="utf-8")
    return _template().render(
        study=study,
        sections=parts,
        facts=_facts(study),
        provenance=list(_flat(json.loads(study["provenance"]))),
        examples=_examples(study["study"]),
        charts=_charts(study["study"], parts),
        light=theme.LIGHT,
        dark=theme.DARK,
        font=theme.FONT,
        style=(folder / "report.css").read_text(encoding="utf-8"),
        bundle=browser.bundle(),
        script=script,
        policy=browser.policy(browser.bundle(), script),
        **context,
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"bound": _bound, "cell": _cell, "count_of": words.count}
    environment.filters |= {"together": _together, "visible": _visible}
    environment.tests["numbers"] = _numeric
    return environment.get_template("study.html.j2")


def _charts(study: str, parts: tuple[Section, ...]) -> str:
    """Specifications of all charts as JSON; the theme stands beside them once for light and once for dark."""
    specs = []
    for figure in _figures(parts):
        for key, chart in figure.drawn:
            spec = chart.to_dict()
            del spec["config"]
            specs.append({"key": key, "spec": spec})
    configs = {"light": theme.config(theme.LIGHT), "dark": theme.config(theme.DARK)}
    return browser.safe_json({"name": study, "charts": specs, **configs})


def _facts(study: words.Row) -> list[tuple[str, str]]:
    """The settings one asks for first."""
    count = words.count
    least, most = study["least_keys"], study["most_keys"]
    keys = f"{most}" if least == most else f"{least} to {most}, by layer"
    facts = {
        "Model": study["model"],
        "Commit or SHA-256": study["revision"],
        "Corpus": study["corpus"],
        "Text": f"{count(study['sequences'], 'sequence')} of {count(study['context_length'], 'token')}",
        "Heads": f"{count(study['layers'], 'layer')} of {count(study['heads'], 'head')}",
        "Value states": f"{count(study['kv_heads'], 'KV head')} in each layer, {study['head_dim']} numbers each",
        "Keys of the query": keys if most else None,
        "Weights in": study["dtype"],
        "Device": study["device"],
        "Versions": _versions(json.loads(study["provenance"])),
    }
    return [(name, value) for name, value in facts.items() if value]


def _versions(provenance: Mapping[str, Any]) -> str:
    """Library versions in one line; empty where none were recorded."""
    versions = provenance.get("versions")
    return ", ".join(f"{name} {version}" for name, version in _flat(versions)) if isinstance(versions, dict) else ""


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested JSON as (dotted name, text)."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else key)
    else:
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _examples(study: str) -> list[tuple[str, str]]:
    """Questions a reader may have, each with the command that answers it."""
    quote = '"{}"'.format if re.fullmatch(r"[\w.-]+", study) else shlex.quote
    return [
        (question, f"attention-geometry sql {quote(query.replace('$study', _literal(study)))}")
        for question, query in EXAMPLES.items()
    ]


def _literal(text: str) -> str:
    """A SQL string literal, for commands that are shown."""
    return "'" + text.replace("'", "''") + "'"


def _bound(parameters: Mapping[str, Parameter]) -> str:
    return ", ".join(
        f"${name} = {_literal(value) if isinstance(value, str) else value}" for name, value in parameters.items()
    )


def _cell(value: Any) -> str:
    """A value in a table: six significant digits, a dash for NULL."""
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _together(sentence: str) -> str:
    """A sentence that no line break parts at an equals sign: ``N = 4``."""
    return sentence.replace(" = ", "\u00a0=\u00a0")


def _numeric(column: pa.ChunkedArray) -> bool:
    """Whether a column holds numbers, for its heading to stand above them."""
    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


_PICTURES: dict[int, int | str] = {code: 0x2400 + code for code in range(0x20)}
_PICTURES |= {0x7F: 0x2421, ord("\n"): "↵", ord("\t"): "⇥"}


def _visible(token: str) -> str:
    """A token with its control characters as pictures, so that each stays on its line."""
    return token.translate(_PICTURES)


def _replace(path: Path, text: str) -> int:
    """Write aside and rename, so that a report is always a whole one; return its bytes."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(text.encode())
        size = aside.stat().st_size
        aside.replace(path)
    except OSError as error:
        msg = f"The report cannot be written to {path}: {error.strerror or error}; name another folder with --home DIR"
        raise UserError(msg) from error
    finally:
        with suppress(OSError):
            aside.unlink()
    return size
