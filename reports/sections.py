"""The sections of a study's report in reading order; a figure without data keeps its place and says why."""

from collections.abc import Callable
from dataclasses import replace

from tqdm import tqdm

from reports.assumptions import figures as assumptions
from reports.bounds import figures as bounds
from reports.claims import figures as claims
from reports.contexts import figures as contexts
from reports.effects import figures as effects
from reports.explorer import figures as explorer
from reports.figures import Section, Source
from reports.head_geometry import figures as head_geometry
from reports.intuition import figures as intuition
from reports.kinds import figures as kinds
from reports.limits import figures as limits
from reports.recovery import figures as recovery
from reports.separation import figures as separation
from reports.sink import figures as sink


def _build_separation(source: Source) -> Section:
    section = separation.build_section(source)
    return replace(section, figures=(*section.figures, *contexts.build_figures(source), intuition.build_example()))


def _build_kinds(source: Source) -> Section:
    section = kinds.build_section(source)
    return replace(section, figures=(*section.figures, *contexts.build_labels(source)))


BUILDERS: tuple[Callable[[Source], Section | tuple[Section, ...]], ...] = (
    assumptions.build_sinks,
    explorer.build_section,
    _build_separation,
    _build_kinds,
    effects.build_sections,
    sink.build_section,
    assumptions.build_section,
    recovery.build_sections,
    claims.build_section,
    head_geometry.build_section,
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
