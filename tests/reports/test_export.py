"""Pictures and tables as files: one for each chart and table, the right rows, replaced whole, refused in a line."""

import csv
import json
import re
import struct
from pathlib import Path

import altair as alt
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reports.elements import layer_chart
from reports.export import WIDTHS, draw_previews, write_images, write_tables
from reports.figures import Figure, Section, find_source
from reports.page import build_sections
from reports.queries import Answer
from storage.errors import escape_unprintable
from tests.reports.conftest import SMALL


@pytest.fixture(scope="module")
def some(small: duckdb.DuckDBPyConnection) -> tuple[Section, ...]:
    """Sections with a chart alone, charts side by side, tables alone, and the explorer."""
    wanted = {"explore", "claims", "sink", "separation"}
    return tuple(part for part in build_sections(find_source(small, SMALL.study, map_n=4)) if part.key in wanted)


@pytest.mark.slow
def test_every_chart_becomes_an_svg_a_pdf_and_a_png(some: tuple[Section, ...], tmp_path: Path) -> None:
    keys = [key for part in some for figure in part.figures for key, _ in figure.drawn]
    assert {"explorer", "sink-effect-1", "sink-effect-2", "elbows"} <= set(keys)
    written = write_images(some, tmp_path / "pictures")
    assert {path.name for path in written} == {f"{key}.{end}" for key in keys for end in ("pdf", "png", "svg")}
    assert sorted((tmp_path / "pictures").iterdir()) == sorted(written)
    starts = {".svg": b"<svg", ".pdf": b"%PDF", ".png": b"\x89PNG"}
    assert not [path for path in written if not path.read_bytes().startswith(starts[path.suffix])]
    alone, beside = (svg_width(tmp_path / "pictures" / f"{key}.svg") for key in ("elbows", "sink-effect-1"))
    assert alone > WIDTHS["alone"] > beside > WIDTHS["beside"]
    png = (tmp_path / "pictures" / "elbows.png").read_bytes()
    assert struct.unpack(">I", png[16:20])[0] == pytest.approx(2 * alone, abs=2)


@pytest.mark.one_case(others="long")
@pytest.mark.parametrize("program", ["import os; os.kill(os.getpid(), 9)", None])
def test_a_page_goes_without_pictures_that_cannot_be_drawn(
    small: duckdb.DuckDBPyConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    program: str | None,
) -> None:
    """It ended with a traceback, and was in no index."""
    (path := tmp_path / "draw.py").write_text(program or "", encoding="utf-8")
    monkeypatch.setattr("reports.vega_process.__file__", str(path))
    if program is None:
        monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    with draw_previews(build_sections(find_source(small, SMALL.study, map_n=4))) as previews:
        assert previews() == {}
    (line,) = caplog.messages
    assert line.startswith("The web UI gets no pictures of this page")


def test_pictures_show_the_codes_of_what_acts_or_is_not_seen(tmp_path: Path) -> None:
    """A token's override of direction turned the text that follows it in a figure of a paper."""
    acting, seen = "\u202ea\x1b\u2028b", r"\u202ea\x1b\u2028b"
    bars = alt.Chart().mark_bar().encode(x="token:N")
    chart = layer_chart([{"token": acting}], acting, acting, bars)
    figure = Figure("made", acting, Answer("claims", {}, pa.table({})), charts=(chart,))
    write_images([Section("s", "S", "", (figure,))], tmp_path)
    svg = (tmp_path / "made.svg").read_text(encoding="utf-8")
    assert escape_unprintable(svg, keep="\n") == svg
    texts = [text for text in re.findall(r"<text[^>]*>([^<]*)", svg) if "202e" in text]
    assert texts == [seen, seen]  # the label of the bar and the title


def svg_width(path: Path) -> float:
    return float(path.read_text(encoding="utf-8").split('width="')[1].split('"')[0])


def test_every_table_becomes_csv_and_parquet(
    some: tuple[Section, ...], small: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    found = {figure.key: figure for part in some for figure in part.figures}
    written = write_tables(some, tmp_path)
    assert {path.name for path in written} == {f"{key}.{end}" for key in found for end in ("csv", "parquet")}
    for key, figure in found.items():
        assert pq.read_table(tmp_path / f"{key}.parquet").equals(figure.table)
        with (tmp_path / f"{key}.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        assert rows[0] == figure.table.column_names
        assert len(rows) == figure.table.num_rows + 1
    recall = small.sql("SELECT avg(recall) FROM selection WHERE n = 4 AND layer = 1 AND head = 2").fetchall()[0][0]
    with (tmp_path / "recall-map.csv").open(encoding="utf-8") as file:
        (row,) = (row for row in csv.DictReader(file) if (row["layer"], row["head"]) == ("1", "2"))
    assert float(row["recall"]) == pytest.approx(recall, rel=1e-12)


def test_lists_and_awkward_texts_survive(tmp_path: Path) -> None:
    table = pa.table({"text": ['a "b",\n', None], "list": [[1, None, 3], None]})
    figure = Figure("made", "Made", Answer("claims", {}, table))
    write_tables([Section("s", "S", "", (figure,))], tmp_path)
    with (tmp_path / "made.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["text"] == 'a "b",\n'
    assert json.loads(rows[0]["list"]) == [1, None, 3]
    assert rows[1] == {"text": "", "list": ""}
    assert pq.read_table(tmp_path / "made.parquet").equals(table)
