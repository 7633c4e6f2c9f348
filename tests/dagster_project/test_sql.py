"""``attention-geometry sql``: reading only, five formats on standard output and nothing else there."""

import csv
import io
import json
import math
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import storage
from dagster_project.command import output
from storage.warehouse.connection import Reader, locate_database
from tests.dagster_project.driver import attention_geometry

SOME = "SELECT layer, head, n, recall FROM selection WHERE sequence = 0 AND n < 3 ORDER BY ALL"


def test_no_text_is_a_formula_in_a_spreadsheet(mine: Path) -> None:
    texts = ["=1+1", "+1", "-1", "@x", "\tx", "a=1", "", "'="]
    values = ", ".join(f"('{text.replace(chr(39), 2 * chr(39))}', -1)" for text in texts)
    statement = f'SELECT * FROM (VALUES {values}, (NULL, -2)) AS t("=name", number)'
    plain, guarded = (
        list(csv.reader(io.StringIO(attention_geometry("sql", statement, "--format", form, home=mine).text)))
        for form in ("csv", "spreadsheet")
    )
    assert [row[0] for row in plain] == ["=name", *texts, ""]
    assert [row[0] for row in guarded] == ["'=name", "'=1+1", "'+1", "'-1", "'@x", "'\tx", "a=1", "", "'=", ""]
    assert [row[1] for row in guarded] == [row[1] for row in plain] == ["number", *["-1"] * len(texts), "-2"]


def test_csv_json_and_parquet_hold_the_same_rows(mine: Path) -> None:
    found = {form: attention_geometry("sql", SOME, "--format", form, home=mine) for form in ("csv", "json", "parquet")}
    assert {form: (result.code, result.errors) for form, result in found.items()} == dict.fromkeys(found, (0, ""))
    rows = json.loads(found["json"].text)
    assert len(rows) == 2 * 4 * 2
    assert pq.read_table(io.BytesIO(found["parquet"].output)).to_pylist() == rows
    assert [
        {name: float(value) for name, value in row.items()} for row in csv.DictReader(io.StringIO(found["csv"].text))
    ] == rows


def test_a_file_of_ones_own_is_joined_and_printed_as_markdown(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("layer,head,score,says\n0,0,2.5,a|b *c* <d>\n0,1,3,e\n", encoding="utf-8")
    asked = "SELECT head, score, says FROM heads JOIN mine USING (layer, head) ORDER BY head"
    given = ("--file", "mine=scores.csv", "--format", "markdown")
    found = attention_geometry("sql", asked, *given, home=mine, cwd=tmp_path)
    assert (found.code, found.errors) == (0, "")
    assert found.text.splitlines() == [
        "| head | score | says |",
        "|---:|---:|---|",
        r"| 0 | 2.5 | a\|b \*c\* \<d\> |",
        "| 1 | 3 | e |",
    ]
    refused = attention_geometry("sql", asked, "--file", "scores.csv", home=mine, cwd=tmp_path)
    assert "write --file NAME=FILE, as in --file mine=scores.csv" in refused.complaint
    other = attention_geometry("sql", "FROM 'scores.csv'", *given, home=mine, cwd=tmp_path)
    assert "disabled" in other.complaint, "the file is a table, and no file can be read"


WIDE = ("study", "sequence", "query", "layer", "head", "n", "k_in", "k_out", "r_min", "r_max", "recall", "precision")


def test_a_table_in_a_pipe_has_every_column_and_ends_after_some_rows(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "TABLE_ROWS", 50)
    found = attention_geometry("sql", f"SELECT {', '.join(WIDE)} FROM selection", home=mine)
    rows = found.text.splitlines()
    assert tuple(rows[1].split()) == WIDE
    assert "…" not in found.text
    assert "Showing the first 50 rows" in found.errors
    assert sum(line.split()[:1] == ["mine"] for line in rows) == 50


def test_json_is_json(mine: Path) -> None:
    query = (
        "SELECT sum(n) AS total, 'nan'::FLOAT AS nothing, [1, NULL] AS list, {'a': 'x'} AS struct, NULL AS none, "
        "'\\xAA'::BLOB AS bytes, DATE '2026-01-02' AS day, true AS yes, 1.5::DECIMAL(4, 2) AS tenth FROM selection"
    )

    def no_constants(name: str) -> None:
        pytest.fail(f"{name} is no JSON")

    (row,) = json.loads(
        attention_geometry("sql", query, "--format", "json", home=mine).text, parse_constant=no_constants
    )
    assert row.pop("total") == 4 * 2 * 4 * math.comb(48, 2)
    assert row == {
        "nothing": None, "list": [1, None], "struct": {"a": "x"}, "none": None, "bytes": "aa", "day": "2026-01-02",
        "yes": True, "tenth": 1.5,
    }  # fmt: skip
    assert json.loads(attention_geometry("sql", "FROM selection WHERE n = 0", "--format", "json", home=mine).text) == []


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("query", "form", "said"),
    [
        ("SELECT x FROM selection", "table", 'Binder Error: Referenced column "x" not found'),
        ("", "table", "There is no result to show"),
        ("SELECT CASE WHEN i > 3000000 THEN error('late') ELSE i::TEXT END FROM range(4000000) t(i)", "csv", "late"),
        ("SELECT [1, 2] AS l", "csv", "cast the column to VARCHAR, or use --format json"),
        ("SELECT 1 AS a, 2 AS a", "json", "Several columns are named 'a'"),
    ],
)
def test_mistakes_are_one_line(mine: Path, query: str, form: str, said: str) -> None:
    assert said in attention_geometry("sql", query, "--format", form, home=mine).complaint


def test_hostile_text_is_harmless_in_a_table(mine: Path) -> None:
    hostile = "chr(27) || '[2J' || chr(7) || chr(13) || chr(155) || '31m' || chr(8238) || '[red]x[/]' || chr(0)"
    shown = attention_geometry("sql", f'SELECT {hostile} AS t, 1 AS "a\x1b[2J[red]"', home=mine).text
    assert not set(shown) & set("\x1b\x07\r\x9b\u202e\x00")
    asked = ("sql", "SELECT chr(8238) || chr(155) || chr(8232) || 'ä😀' AS text", "--format", "json")
    assert r"\u202e\u009b\u2028ä😀" in attention_geometry(*asked, home=mine).text
    assert r"\x1b[2J\x07\r\x9b31m\u202e[red]x[/]\x00" in shown
    assert r"a\x1b[2J[red]" in shown


@pytest.fixture
def root(landed_root: Path, tmp_path: Path) -> Path:
    """A data root of its own with that study."""
    (tmp_path / "data" / "warehouse").mkdir(parents=True)
    shutil.copy(locate_database(landed_root / "warehouse", "small"), tmp_path / "data" / "warehouse")
    return tmp_path / "data"


def test_ctrl_c_stops_a_statement_and_not_the_prompt(
    root: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True))
    monkeypatch.setattr("prompt_toolkit.PromptSession", lambda **_: None)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)  # as SIGINT, but not from a thread that waits

    def typed(_: object) -> Iterator[str]:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        yield "SELECT count(*) FROM range(1000000000) t(i) WHERE hash(i) = 3;"
        yield "SELECT 42 AS answer;"

    monkeypatch.setattr(output, "_read_statements", typed)
    try:
        with closing(Reader(root / "warehouse")) as reader:
            output.run_prompt(reader, "csv")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sys.stdout.buffer.getvalue() == b'"answer"\n42\n'
    assert capfdbinary.readouterr().err.splitlines()[2:] == [b"Interrupted"]


def test_the_prompt_goes_on_when_it_cannot_look_for_what_has_landed(
    root: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError("too many open files")

    with closing(Reader(root / "warehouse")) as reader:
        monkeypatch.setattr("storage.warehouse.connection._find_versions", fail)
        output.answer(reader, "SELECT 42 AS answer;", "csv")
    found = capfdbinary.readouterr()
    assert found.out == b'"answer"\n42\n'
    assert b"cannot be reopened (too many open files)" in found.err


def test_unlocked_sql_reads_and_copies_files_and_writes_no_study(root: Path, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("study,mark\nsmall,good\n")
    copied = "COPY (FROM studies JOIN 'own.csv' USING (study) SELECT mark) TO 'out.parquet'"
    before = locate_database(root / "warehouse", "small").read_bytes()
    assert "COPY is not allowed" in attention_geometry("sql", copied, home=root, cwd=tmp_path).complaint
    refused = attention_geometry("sql", 'DETACH "study small"', "--unlocked", home=root, cwd=tmp_path)
    assert refused.complaint.startswith("sql only reads")
    assert attention_geometry("sql", copied, "--unlocked", home=root, cwd=tmp_path).code == 0
    assert locate_database(root / "warehouse", "small").read_bytes() == before
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == [{"mark": "good"}]


@pytest.mark.one_case(others="long")
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_fits_its_terminal_and_cuts_no_name(root: Path, width: int) -> None:
    shown = attention_geometry("sql", "FROM selection LIMIT 3", home=root, COLUMNS=str(width)).text.splitlines()
    assert max(map(len, shown)) <= width
    with storage.connect(root) as connection:
        names = connection.sql("FROM selection").columns
    head = next(line for line in shown if "study" in line)
    kept = re.sub(r"\+\d+ columns", "", head).split()
    assert set(kept) < set(names)
    assert f"+{len(names) - len(kept)} columns" in head
    assert attention_geometry("sql", "SELECT NULL AS x", home=root).text.split()[-1] == "NULL"
