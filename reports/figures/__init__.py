"""The figures of a study's report: each combines a query, charts or a table, and the sentences below it.

Holds the sections of the report in reading order. A figure without data keeps its place and says why it is empty.
Modules: ``parts`` (figures, sections, queries), and one per subject.
"""

from collections.abc import Callable

from tqdm import tqdm

from reports.figures import (
    assumptions,
    bounds,
    chance,
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

__all__ = ["Chart", "Figure", "Section", "Source", "find_source", "only_row", "sections"]


BUILDERS: tuple[Callable[[Source], Section | tuple[Section, ...]], ...] = (
    lambda _: intuition.section(),
    separation.separation,
    explorer.section,
    separation.heads,
    taxonomy.section,
    geometry.section,
    contexts.section,
    limits.sections,
    effects.sections,
    sink.section,
    assumptions.section,
    recovery.sections,
    bounds.bounds,
    bounds.analysis,
    bounds.expectation,
    claims.section,
    chance.exactness,
)
"""Functions that build the sections, in reading order."""


def sections(source: Source) -> tuple[Section, ...]:
    """The figures of the report, in reading order."""
    found = (build(source) for build in tqdm(BUILDERS, "page", unit="section", disable=None))
    return tuple(section for several in found for section in (several if isinstance(several, tuple) else (several,)))
