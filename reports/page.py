"""The report of a study: one self-contained HTML page."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
from tqdm import tqdm

from reports import rendering
from reports import settings as settings_findings
from reports.assumptions import figures as assumptions
from reports.bounds import figures as bounds
from reports.claims import figures as claims
from reports.contexts import figures as contexts
from reports.effects import figures as effects
from reports.explorer import figures as explorer
from reports.export import Png, draw_previews
from reports.figures import Section, Source, find_source
from reports.head_geometry import figures as head_geometry
from reports.headlines import findings as headlines_findings
from reports.intuition import figures as intuition
from reports.kinds import figures as kinds
from reports.limits import figures as limits
from reports.recovery import figures as recovery
from reports.rendering import iterate_figures, render, unvalidated
from reports.separation import figures as separation
from reports.sink import figures as sink
from reports.text.reader import MEASURES, collect_reader
from storage.files.staging import write_atomically
from storage.warehouse.relations import quote_literal


def _build_separation(source: Source) -> Section:
    section = separation.build_section(source)
    return replace(section, figures=(*section.figures, *contexts.build_figures(source), intuition.build_example()))


def _build_kinds(source: Source) -> Section:
    section = kinds.build_section(source)
    return replace(section, figures=(*section.figures, *contexts.build_labels(source)))


BUILDERS: tuple[Callable[[Source], Section], ...] = (
    assumptions.build_sinks,
    explorer.build_section,
    _build_separation,
    _build_kinds,
    effects.build_section,
    sink.build_section,
    assumptions.build_section,
    recovery.build_section,
    claims.build_section,
    head_geometry.build_section,
    limits.build_section,
    bounds.build_bounds,
    bounds.build_analysis,
    bounds.build_expectation,
)
"""Functions that build the sections, in reading order."""


def build_sections(source: Source) -> tuple[Section, ...]:
    """The figures of the report, in reading order; those of a section may all be absent, or there may be none."""
    return tuple(build(source) for build in tqdm(BUILDERS, "page", unit="section", disable=None))


REMEDY = "name another folder with --home DIR"

TEXTS, TOKENS = 24, 48  # Largest number of sequences shown, and of the first tokens of each


EXAMPLES = {
    "Precision and Recall of the whole model at a few N": (
        "SELECT n, avg(precision) AS precision, avg(recall) AS recall FROM selection "
        "WHERE study = $study AND query = $query AND n IN (1, 2, 4, 8, 16, 32, 64) GROUP BY n ORDER BY n"
    ),
    "The ten heads with the largest weight on the sink": (
        "SELECT layer, head, mean_weight FROM attention_by_position "
        "WHERE study = $study AND query = $query AND position = 0 ORDER BY mean_weight DESC LIMIT 10"
    ),
    "One head, sequence by sequence": (
        "SELECT sequence, n, k_in, k_out, precision, recall, norm_s, cos_sink FROM selection "
        "WHERE study = $study AND query = $query AND layer = 0 AND head = 0 AND n <= 4 ORDER BY sequence, n"
    ),
    "The paper's lower bounds at another κ, in the scale as printed": (
        "SELECT n, avg(margin) AS margin, avg(precision_lower) AS precision_lower, avg(recall_lower) AS recall_lower "
        "FROM lower_bounds(2.5, 'raw') WHERE study = $study AND query = $query AND n <= 8 GROUP BY n ORDER BY n"
    ),
    "Heads and N whose mean lies outside its bounds": (
        "SELECT layer, head, n, family, kappa, precision, precision_lower, precision_upper FROM bounds_comparison "
        "WHERE study = $study AND query = $query AND NOT precision_inside ORDER BY ALL LIMIT 20"
    ),
    "Kinds of heads with other thresholds": (
        "SELECT label, count(*) AS heads FROM taxonomy(last_high := 0.6) "
        "WHERE study = $study AND query = $query GROUP BY label ORDER BY label"
    ),
    "Precision and Recall by context size": (
        "SELECT query, n, avg(precision) AS precision, avg(recall) AS recall FROM selection "
        "WHERE study = $study AND n IN (1, 2, 4, 8) GROUP BY query, n ORDER BY query, n"
    ),
    "All columns and their meaning": (
        "SELECT table_name, column_name, comment FROM duckdb_columns() "
        "WHERE comment IS NOT NULL ORDER BY table_name, column_index"
    ),
}
"""Questions a reader may have, with the SQL that answers them."""


@dataclass(frozen=True)
class ReportSummary:
    """Summary of a written report."""

    path: Path
    bytes: int
    charts: int  # Number of charts drawn; a figure may have none, or several
    previews: Mapping[str, Png]  # Some of them as PNG, by the titles of their figures


@unvalidated
def write_report(
    connection: duckdb.DuckDBPyConnection,
    study: str,
    path: Path,
    *,
    map_n: int,
    home: str | None = None,
    origin: str = "",
) -> ReportSummary:
    """Write the report of a study atomically; an existing report at ``path`` is replaced.

    Maps of Precision and Recall are at N = ``map_n``, or at the largest N of the study; ``home`` is a relative link to
    the index, ``origin`` what the page is made from, as the caller describes it, which its head keeps.
    """
    if map_n < 1:
        raise ValueError(f"map_n must be at least 1, not {map_n}")
    source = find_source(connection, study, map_n=map_n)
    parts = build_sections(source)
    charts = sum(len(figure.charts) for figure in iterate_figures(parts))
    with draw_previews(parts) as previews:
        written = write_atomically(path, _render_page(source, parts, home, origin).encode(), remedy=REMEDY)
        return ReportSummary(path, written, charts, previews())


def _render_page(source: Source, parts: tuple[Section, ...], home: str | None, origin: str) -> str:
    """Render the page as text; a section without a figure to show is left out, unless it has the summary."""
    study = source.overview
    shown = tuple(section for section in parts if section.groups or section.key == "summary")
    texts = source.ask_study("opening_tokens", sequences=TEXTS, positions=TOKENS).rows()
    tokens = texts if study["model"] != "synthetic" else []
    reader = collect_reader(source) if any(section.key == "explore" for section in shown) else None
    return render(
        "study.html.j2",
        shown,
        name=source.study,
        further=() if reader is None else ("reader.js",),
        reader=None if reader is None else rendering.pack(reader),
        measures=() if reader is None or reader["measures"] is None else MEASURES.values(),
        name_of_model="" if study["model"] == "synthetic" else settings_findings.name_model(study),
        study=study,
        home=home,
        origin=origin,
        **_summarise(source),
        absent=[figure for section in parts for figure in section.absent],
        facts=settings_findings.list_facts(study).items(),
        provenance=settings_findings.iterate_entries(json.loads(study["provenance"])),
        start=settings_findings.describe_start(study),
        texts=[(sequence, list(some)) for sequence, some in groupby(tokens, key=lambda row: row["sequence"])],
        examples=_list_examples(source.study, source.query),
    )


def _summarise(source: Source) -> dict[str, Any]:
    facts, claims, measures = (source.ask_study(name).rows() for name in ("facts", "claims", "measures"))
    twin_sequences = None if source.twin is None else source.twin.overview["sequences"]
    separation = headlines_findings.judge_separation(source.overview, claims, measures, twin_sequences)
    return {
        "terms": headlines_findings.TERMS,
        "question": headlines_findings.QUESTION,
        "answer": separation.answer,
        "separation": headlines_findings.tabulate_separation(separation),
        "rule": headlines_findings.RULE,
        "gaps": list(headlines_findings.iterate_gaps(source.overview, claims)),
        "outstanding": headlines_findings.select_facts(facts, claims),
    }


def _list_examples(study: str, position: int) -> list[tuple[str, str]]:
    """List questions a reader may have with the commands that answer them, for the query that the report shows."""
    quote = '"{}"'.format if re.fullmatch(r"[\w.-]+", study) else shlex.quote
    name = quote_literal(study)
    return [
        (question, f"attention-geometry sql {quote(query.replace('$query', str(position)).replace('$study', name))}")
        for question, query in EXAMPLES.items()
    ]
