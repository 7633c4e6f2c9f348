"""Which figures a study's report has: each joins a query, charts or a table, and the words below it.

Holds the sections of the report in reading order.

A figure that a study has no data for keeps its place and says why it is empty. Modules: ``parts`` (figures, sections,
questions), and one per subject.
"""

from reports.figures import (
    assumptions,
    bounds,
    chance,
    claims,
    contexts,
    explorer,
    geometry,
    intuition,
    recovery,
    separation,
    sink,
    taxonomy,
)
from reports.figures.parts import Chart, Figure, Section, Source, find_source, only_row

__all__ = ["Chart", "Figure", "Section", "Source", "find_source", "only_row", "sections"]


def sections(source: Source) -> tuple[Section, ...]:
    """The figures of the report, in reading order."""
    return (
        intuition.section(),
        separation.separation(source),
        explorer.section(source),
        separation.heads(source),
        taxonomy.section(source),
        geometry.section(source),
        contexts.section(source),
        sink.section(source),
        assumptions.section(source),
        *recovery.sections(source),
        bounds.bounds(source),
        bounds.analysis(source),
        *bounds.expectation(source),
        claims.section(source),
        chance.exactness(source),
    )
