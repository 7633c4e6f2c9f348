"""Rendering of pages: the templates, their filters, and the charts as JSON with the scripts that draw them.

Tokens, names and provenance are untrusted: they reach a page only through Jinja's escaping or ``pack``.
"""

import gzip
import json
import re
import zlib
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import pyarrow as pa
import pyarrow.compute as pc
import vl_convert
from altair.utils.schemapi import debug_mode
from markupsafe import Markup, escape

from reports import settings, theme
from reports.figures import Chart, Figure, Section
from reports.findings.numbers import count, number, percent
from storage.errors import UserError, escape_unprintable
from storage.files.staging import write_atomically

COMPILED = Path(__file__).parent / "__pycache__"  # Folder of what is kept from one process to the next

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""Version of Vega-Lite whose charts Altair makes."""

LEVEL = 6  # How hard ``pack`` compresses: level 9 takes several times as long, for about a hundredth of the size


@cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one JavaScript module that sets ``window.vegaEmbed`` (about 0.9 MB).

    Building it takes more than a second; the result is kept beside the compiled code of this package, if that can be
    written.
    """
    kept = COMPILED / f"vega-{metadata.version('vl-convert-python')}-{VEGA_LITE}.js.gz"
    with suppress(OSError, EOFError, zlib.error):  # there is none, or it is damaged
        return gzip.decompress(kept.read_bytes()).decode()
    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    safe = text.replace("</script", "<\\/script")
    with suppress(UserError):
        write_atomically(kept, gzip.compress(safe.encode(), LEVEL), remedy="it is built again each time")
    return safe


def pack(value: Any) -> str:
    """Compress JSON and encode it in base 64: about a third of its size, and inert anywhere in a page.

    The same value gives the same text; ``report.js`` unpacks it.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), LEVEL, mtime=0)).decode()


def make_policy(*scripts: str) -> str:
    """A Content-Security-Policy under which only these inline scripts run, if any, and nothing is fetched."""
    hashes = (
        " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts) or "'none'"
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


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
    scripts = [bundle(), *own] if drawn else own
    return (
        _make_environment()
        .get_template(template)
        .render(
            sections=sections,
            numbered=number_figures(sections),
            charts=_pack_charts(name, sections) if drawn else "",
            scripts=scripts,
            policy=make_policy(*scripts),
            light=theme.LIGHT,
            dark=theme.DARK,
            font=theme.FONT,
            style=(folder / style).read_text(encoding="utf-8"),
            **context,
        )
    )


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
        loader=jinja2.PackageLoader(__package__), autoescape=True, finalize=show_text, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {
        "cells": _render_cells,
        "same": _find_constants,
        "typeset": _typeset,
        "count_of": count,
        "model_of": settings.name_model,
        "short": settings.shorten_path,
        "percent": percent,
    }
    environment.filters |= {"number": number, "visible": show_token}
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
    return pack({"name": name, "charts": specs, **configs})


def write_spec(chart: Chart) -> dict[str, Any]:
    """A chart in Vega-Lite with its theme, for pages and pictures, its texts as ``show_text`` returns them."""
    spec: dict[str, Any] = show_text(chart.to_dict(validate=False))  # the tests validate the charts of every figure
    return spec


LONG = 100  # Tables with more rows show a value that is the same in all rows only once, above the table


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


SHOWN = 6  # Keys of each head that the table of a text shows


@dataclass(frozen=True)
class TextPage:
    """A part of a page that notebooks show: no scripts, nothing is loaded."""

    html: str

    def _repr_html_(self) -> str:
        """The HTML, as notebooks ask for it."""
        return self.html


def render_text(
    model: str,
    query: int,
    n: int,
    tokens: pa.Table,
    heads: pa.Table,
    top_keys: pa.Table,
    chosen: tuple[int, int] | None = None,
) -> TextPage:
    """Render the heads of a model on one text, as in ``attention_geometry.Analysis``, shaded by the weights of one."""
    keys: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in top_keys.to_pylist():
        keys[row["layer"], row["head"]].append(row)
    if chosen is not None and chosen not in keys:
        raise ValueError(f"there is no head {chosen[1]} in layer {chosen[0]}")
    at = {} if chosen is None else {row["position"]: row for row in keys[chosen]}
    return TextPage(
        _make_environment()
        .get_template("text.html.j2")
        .render(
            model=model,
            query=query,
            n=n,
            chosen=chosen,
            tokens=[(position, token, at.get(position)) for position, token in enumerate(tokens["token"].to_pylist())],
            heads=[(row, keys[row["layer"], row["head"]][:SHOWN]) for row in heads.to_pylist()],
            light=theme.LIGHT,
            dark=theme.DARK,
        )
    )
