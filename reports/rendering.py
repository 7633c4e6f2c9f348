"""Rendering of pages: the templates, their filters, and the charts as JSON with the scripts that draw them.

Tokens, names and provenance are untrusted: they reach a page only through Jinja's escaping or the encoding of
``reports.browser``.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
import pyarrow as pa
import pyarrow.compute as pc
from altair.utils.schemapi import debug_mode
from markupsafe import Markup, escape

from reports import browser, settings, theme
from reports.figures import Chart, Figure, Section
from reports.findings import numbers
from storage.errors import escape_unprintable

unvalidated = debug_mode(False)
"""Decorator of functions that write pages: Altair does not validate charts in them; the tests of charts do."""


def render(
    template: str,
    sections: Sequence[Section] = (),
    *,
    name: str = "",
    further: Sequence[str] = (),
    style: str = "report.css",
    **context: Any,
) -> str:
    """Render a page as text.

    Parameters
    ----------
    template
        File in ``reports/templates``.
    sections
        The sections that the template shows; a page without charts has no scripts.
    name
        Prefix of the file names of saved charts.
    further
        Files in ``reports/templates`` of other scripts of the page.
    style
        Its style sheet, there.
    context
        Other variables of the template.
    """
    folder = files(__package__) / "templates"
    drawn = any(figure.charts for figure in iterate_figures(sections))
    names = ("report.js", *further) if drawn else further
    own = [(folder / script).read_text(encoding="utf-8") for script in names]
    scripts = [browser.bundle(), *own] if drawn else own
    return (
        _make_environment()
        .get_template(template)
        .render(
            sections=sections,
            numbered=number_figures(sections),
            charts=_pack_charts(name, sections) if drawn else "",
            scripts=scripts,
            policy=browser.make_policy(*scripts),
            light=theme.LIGHT,
            dark=theme.DARK,
            font=theme.FONT,
            style=(folder / style).read_text(encoding="utf-8"),
            **context,
        )
    )


def render_fragment(template: str, **context: Any) -> str:
    """Render a part of a page, which has no scripts."""
    return _make_environment().get_template(template).render(**context)


def iterate_figures(sections: Sequence[Section]) -> Iterator[Figure]:
    """Iterate over the figures of sections, in reading order."""
    for section in sections:
        yield from section.figures


def number_figures(sections: Sequence[Section]) -> dict[str, str]:
    """Number the figures that are not empty, by key: ``Figure 3``, ``Table 1``."""
    numbers: dict[str, str] = {}
    counts = {"Figure": 0, "Table": 0}
    for figure in iterate_figures(sections):
        if not figure.empty:
            kind = "Figure" if figure.charts else "Table"
            counts[kind] += 1
            numbers[figure.key] = f"{kind} {counts[kind]}"
    return numbers


@cache
def _make_environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        finalize=show_text,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "cells": _render_cells,
        "same": _find_constants,
        "typeset": _typeset,
        "count_of": numbers.count,
        "model_of": settings.name_model,
        "short": settings.shorten_path,
        "percent": numbers.percent,
    }
    environment.filters |= {"number": numbers.number, "visible": show_token}
    environment.filters["together"] = lambda text: text.replace(" = ", "\u00a0=\u00a0")  # equations stay on one line
    environment.tests["numbers"] = lambda column: pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    return environment


def _pack_charts(name: str, sections: Sequence[Section]) -> str:
    """Pack the specifications of all charts, with the theme once for light and once for dark."""
    specs = []
    for figure in iterate_figures(sections):
        for key, chart in figure.drawn:
            spec = write_spec(chart)
            del spec["config"]
            if len(figure.charts) == 1 and not figure.titled:
                del spec["title"]  # it is shown above the chart, where it can wrap
            specs.append({"key": key, "spec": spec})
    configs = {"light": theme.make_config(theme.LIGHT), "dark": theme.make_config(theme.DARK)}
    return browser.pack({"name": name, "charts": specs, **configs})


def write_spec(chart: Chart) -> dict[str, Any]:
    """A chart in Vega-Lite with its theme, for pages and pictures, its texts as ``show_text`` returns them."""
    spec: dict[str, Any] = show_text(chart.to_dict(validate=False))  # the tests validate the charts of every figure
    return spec


LONG = 100
"""Tables with more rows show a value that is the same in all rows only once, above the table."""


def _find_constants(table: pa.Table) -> dict[str, str]:
    """Find the columns of a long table with one value in all rows, and that value as its cells would show it."""
    if table.num_rows <= LONG:
        return {}
    flat = [name for name in table.column_names if not pa.types.is_nested(table.schema.field(name).type)]
    ends = {name: pc.min_max(table[name]).as_py() for name in flat}
    constants = {
        name: end["min"] for name, end in ends.items() if end["min"] == end["max"] and not table[name].null_count
    }
    return {name: f"{value:.6g}" if isinstance(value, float) else str(value) for name, value in constants.items()}


def _render_cells(table: pa.Table) -> Markup:
    """Render the rows of a table as HTML without optional end tags: a page may have thousands of rows."""
    rows = zip(*(map(_render_cell, column.to_pylist()) for column in table.columns), strict=True)
    return Markup("\n".join(f"<tr>{''.join(row)}" for row in rows))  # noqa: S704 (each cell escapes its value)


def _render_cell(value: Any) -> str:
    """Render a value: six significant digits, a dash for NULL, JSON for a list; no number: a class."""
    if value is None:
        return "<td>–"
    if isinstance(value, float):
        return f"<td>{value:.6g}"
    if isinstance(value, int):
        return f"<td>{value}"
    return f'<td class="text">{escape(show_text(json.dumps(value) if isinstance(value, list) else value))}'


_SUBSCRIPT = re.compile(r"(?<!\w)([A-Za-zρμ])_(min|max|in|out|[A-Za-z0-9])\b")
"""A symbol with its index, as sentences write it: ``r_min``, ``s_N``, ``ρ_0``."""


def _typeset(text: str) -> Markup:
    """Convert a sentence to HTML, with indices of symbols as subscripts."""
    return Markup(_SUBSCRIPT.sub(r"\1<sub>\2</sub>", str(Markup.escape(show_text(text)))))  # noqa: S704 (escaped first)


_SYMBOLS = str.maketrans({"\n": "↵", "\t": "⇥"})


def show_token(token: str) -> str:
    """A token with symbols for line ends and tabs, so that it stays on its line, and codes of what is not seen."""
    return escape_unprintable(token.translate(_SYMBOLS))


def show_text(value: Any) -> Any:
    """Any value with ``escape_unprintable`` applied to all texts in it, except for line ends; markup stays as it is."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return escape_unprintable(value, keep="\n")
    if isinstance(value, dict):
        return {show_text(key): show_text(inner) for key, inner in value.items()}
    return [show_text(inner) for inner in value] if isinstance(value, list | tuple) else value
