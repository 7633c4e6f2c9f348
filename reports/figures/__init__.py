"""The figures of a study's report: each combines a query, charts or a table, and the sentences below it.

Holds the sections of the report in reading order. A figure without data keeps its place and says why it is empty.
Modules: ``parts`` (figures, sections, queries), and one per subject.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tqdm import tqdm

from reports.figures import (
    assumptions,
    attention,
    bounds,
    claims,
    contexts,
    effects,
    explorer,
    geometry,
    intuition,
    limits,
    recovery,
    separation,
    sink,
    taxonomy,
)
from reports.figures.parts import Chart, Figure, Section, Source, find_source, only_row
from reports.findings.claims import describe_claims
from reports.findings.numbers import Row

__all__ = ["Chart", "Figure", "Section", "Source", "find_source", "only_row", "sections"]


BUILDERS: tuple[Callable[[Source], Section | tuple[Section, ...]], ...] = (
    attention.build_section,
    lambda _: intuition.build_section(),
    separation.build_separation,
    explorer.build_section,
    separation.build_heads,
    taxonomy.build_section,
    geometry.build_section,
    contexts.build_section,
    limits.build_sections,
    effects.build_sections,
    sink.build_section,
    assumptions.build_section,
    recovery.build_sections,
    bounds.build_bounds,
    bounds.build_analysis,
    bounds.build_expectation,
    claims.build_section,
)
"""Functions that build the sections, in reading order."""


def sections(source: Source) -> tuple[Section, ...]:
    """The figures of the report, in reading order, each with the verdicts of the claims that it shows."""
    found = (build(source) for build in tqdm(BUILDERS, "page", unit="section", disable=None))
    rows = source.ask_study("claims").rows()
    return tuple(
        replace(section, figures=tuple(_tell_claims(figure, rows) for figure in section.figures))
        for several in found
        for section in (several if isinstance(several, tuple) else (several,))
    )


def _tell_claims(figure: Figure, rows: Sequence[Row]) -> Figure:
    """A figure with a paragraph about the claims that it shows, if it is drawn (``claims``)."""
    told = describe_claims(rows, *(row["claim"] for row in rows if row["shown_by"] == figure.key))
    return replace(figure, finding=f"{figure.finding}\n{told}") if told and not figure.empty else figure
