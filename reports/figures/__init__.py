"""The figures of a study's report: each combines a query, charts or a table, and the sentences below it.

Holds the sections of the report in reading order. A figure without data keeps its place and says why it is empty.
Modules: ``parts`` (figures, sections, queries), and one per subject.
"""

from collections.abc import Callable
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

__all__ = ["Chart", "Figure", "Section", "Source", "find_source", "only_row", "sections"]


def _append(section: Section, figures: tuple[Figure, ...]) -> Section:
    return replace(section, figures=(*section.figures, *figures))


def _build_separation(source: Source) -> Section:
    return _append(separation.build_section(source), (*contexts.build_figures(source), intuition.build_example()))


def _build_kinds(source: Source) -> Section:
    return _append(taxonomy.build_section(source), contexts.build_labels(source))


BUILDERS: tuple[Callable[[Source], Section | tuple[Section, ...]], ...] = (
    attention.build_section,
    explorer.build_section,
    _build_separation,
    _build_kinds,
    effects.build_sections,
    sink.build_section,
    assumptions.build_section,
    recovery.build_sections,
    claims.build_section,
    geometry.build_section,
    limits.build_sections,
    bounds.build_bounds,
    bounds.build_analysis,
    bounds.build_expectation,
)
"""Functions that build the sections, in reading order."""


def sections(source: Source) -> tuple[Section, ...]:
    """The figures of the report, in reading order; those of a section may all be absent."""
    built = (build(source) for build in tqdm(BUILDERS, "page", unit="section", disable=None))
    return tuple(section for several in built for section in (several if isinstance(several, tuple) else (several,)))
