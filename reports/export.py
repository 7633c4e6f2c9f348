"""Export of charts as images and of tables as files, for papers, slides, notebooks and Dagster's web UI."""

import json
import logging
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import altair as alt
import pyarrow as pa
import vl_convert
from pyarrow import csv, parquet
from tqdm import tqdm

from reports import rendering, vega_process
from reports.figures import Chart, Figure, Section
from reports.rendering import iterate_figures, write_spec
from storage.files.staging import write_atomically
from storage.files.user_paths import refuse_existing

logger = logging.getLogger(__name__)

SCALE = 2  # Pixels of a PNG per pixel of the chart on the page

WIDTHS = {"alone": 640, "broad": 960, "beside": 440, "many": 280}
"""Widths of the plotting area, in pixels, for charts that are as wide as their container on the page."""

PICTURES = ("svg", "pdf", "png")  # Formats of pictures

Png = bytes  # A PNG image

PREVIEWS = ("recall-by-n", "kinds-plane")  # Keys of the figures that summarise a study if there is no room for the page

REMEDY = "name a folder that can be written"


def write_images(sections: Sequence[Section], folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write each chart as SVG, PDF and PNG, named after its figure; interactive charts are in their initial state."""
    drawn = [(key, _set_width(figure, chart)) for figure in iterate_figures(sections) for key, chart in figure.drawn]
    refuse_existing((folder / f"{key}.{end}" for key, _ in drawn for end in PICTURES), overwrite=overwrite)
    written = []
    for key, chart in tqdm(drawn, desc="pictures", unit="chart", disable=None):
        spec, version = write_spec(chart), rendering.VEGA_LITE
        svg = vl_convert.vegalite_to_svg(spec, vl_version=version)
        pdf = vl_convert.vegalite_to_pdf(spec, vl_version=version)
        png = vl_convert.vegalite_to_png(spec, vl_version=version, scale=SCALE)
        for ending, content in zip(PICTURES, (svg.encode(), pdf, png), strict=True):
            written.append(folder / f"{key}.{ending}")
            write_atomically(written[-1], content, remedy=REMEDY)
    return written


@contextmanager
def draw_previews(sections: Sequence[Section]) -> Iterator[Callable[[], dict[str, Png]]]:
    """Draw the first chart of each of ``PREVIEWS`` that a study has; yields what returns PNGs by their figures' titles.

    They are drawn in a process of their own while this one goes on: Vega starts for half a second and holds Python's
    lock. If that process fails, as where it may not reserve the addresses that V8 does, there are none, and a line
    says so.
    """
    figures = [figure for figure in iterate_figures(sections) if figure.key in PREVIEWS and figure.charts]
    titles = [figure.title for figure in figures]
    specs = [write_spec(_set_width(figure, figure.charts[0])) for figure in figures]
    command = [sys.executable, "-P", vega_process.__file__]
    text = json.dumps([rendering.VEGA_LITE, specs])
    with ThreadPoolExecutor(1) as thread:
        drawn = thread.submit(subprocess.run, command, input=text, capture_output=True, text=True, check=True)
        yield lambda: _collect(drawn, titles)


def _collect(drawn: Future[subprocess.CompletedProcess[str]], titles: Sequence[str]) -> dict[str, Png]:
    """The pictures that a process has drawn, by title; none if it failed."""
    try:
        return dict(zip(titles, map(b64decode, json.loads(drawn.result().stdout)), strict=True))
    except (OSError, subprocess.CalledProcessError) as error:
        why = f"exit code {error.returncode}" if isinstance(error, subprocess.CalledProcessError) else error
        logger.warning("The web UI gets no pictures of this page, since they could not be drawn (%s)", why)
        return {}


def write_tables(sections: Sequence[Section], folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write the table behind each figure, with all its rows, as CSV and Parquet; lists are JSON in CSV.

    Files are named after their figures.
    """
    figures, written = list(iterate_figures(sections)), []
    names = (f"{figure.key}.{ending}" for figure in figures for ending in ("csv", "parquet"))
    refuse_existing((folder / name for name in names), overwrite=overwrite)
    for figure in tqdm(figures, desc="tables", unit="table", disable=None):
        table = figure.table if figure.whole is None else figure.whole
        parquet.write_table(table, encoded := BytesIO())
        for ending, content in (("csv", _encode_csv(table)), ("parquet", encoded.getvalue())):
            written.append(folder / f"{figure.key}.{ending}")
            write_atomically(written[-1], content, remedy=REMEDY)
    return written


def _set_width(figure: Figure, chart: Chart) -> Chart:
    """Give a chart a fixed width in place of that of its container."""
    if isinstance(chart, alt.ConcatChart) or chart.width != "container":
        return chart
    place = "many" if len(figure.charts) > 3 else "beside" if len(figure.charts) > 1 else "alone"
    sized: alt.LayerChart = chart.properties(width=WIDTHS["broad" if figure.broad else place])
    return sized


def _encode_csv(table: pa.Table) -> bytes:
    nested = [name for name in table.column_names if pa.types.is_nested(table[name].type)]
    for name in nested:
        texts = [None if value is None else json.dumps(value) for value in table[name].to_pylist()]
        table = table.set_column(table.column_names.index(name), name, pa.array(texts, pa.string()))
    buffer = BytesIO()
    csv.write_csv(table, buffer)
    return buffer.getvalue()
