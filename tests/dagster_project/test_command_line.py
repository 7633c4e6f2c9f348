"""The command line's own things: data root, doctor, guides, completion, JSON, terminals of every kind, and ``sql``."""

import csv
import io
import json
import math
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
import typer
from typer.main import get_command

import storage
from dagster_project.command import options, output
from dagster_project.command.cli import app
from dagster_project.study.home import Home
from extract.models import checks
from reports.overviews import render_catalogue
from storage.errors import UserError
from storage.warehouse.connection import Reader, locate_database
from storage.warehouse.documentation import list_examples, render_example
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.dagster_project.driver import PROGRAM, attention_geometry, environment

COUNT = ("sql", "SELECT count(*) AS c FROM studies", "--format", "csv")


def test_the_data_root_may_be_named_before_or_after_the_command(mine: Path, tmp_path: Path) -> None:
    assert attention_geometry("--home", mine, *COUNT, cwd=tmp_path).text == '"c"\n1\n'
    assert attention_geometry(*COUNT, "--home", mine, cwd=tmp_path).text == '"c"\n1\n'
    assert attention_geometry(*COUNT, cwd=tmp_path).text == '"c"\n0\n'


def test_doctor_names_what_is_incomplete_broken_or_left_over(copied: Path) -> None:
    SequenceStore.open(Home(copied).tensors("mine"), TENSORS).array("finished")[1:3] = 0
    (copied / "tensors" / "other.zarr").mkdir()
    (copied / "warehouse" / f"mine.{'0123' * 8}.partial").touch()
    table = making.find_part(Home(copied), "mine", "coverage_by_sequence")
    table.write_bytes(b"")
    (copied / "parts" / "a\x1b[2Jb").mkdir()
    found = attention_geometry("doctor", home=copied)
    assert found.code == 0
    assert "all our own" in found.text
    assert r"a\x1b[2Jb" in found.text
    assert "\x1b" not in found.text
    assert "incomplete: 2 of 4 sequences are missing; run the study again" in found.text
    assert "is damaged" in found.text
    assert "incomplete: coverage_by_sequence missing or damaged; run the study again" in found.text
    assert f"mine.{'0123' * 8}.partial" in found.text
    verified = attention_geometry("doctor", "--verify", "--json", home=copied)
    damaged = {row["read"]: row["state"] for row in json.loads(verified.text)["checksums"]}
    assert verified.code == 1
    assert "attention-geometry run mine" in damaged[str(table)]
    assert re.fullmatch(r"\d+ intact", damaged["all others"])


def test_names_of_folders_are_text_and_no_markup(tmp_path: Path) -> None:
    home = tmp_path / "[bold]my data[/bold] [/]"
    assert str(home) in attention_geometry("doctor", home=home).text
    (home / "studies.yaml").write_text(
        "studies: {own: {model: '/m[red]/[/x]', corpus: embedded, context_length: 8, sequences: 1}}"
    )
    assert "/m[red]/[/x]" in attention_geometry("studies", home=home).text


# --- what scripts and shells use ---


def test_what_scripts_read_is_json(mine: Path) -> None:
    def tell(*arguments: object) -> dict[str, object]:
        done = attention_geometry(*arguments, "--json", home=mine)
        assert done.code == 0, done.errors
        found: dict[str, object] = json.loads(done.text)
        return found

    ran = tell("run", "mine")
    assert (ran["study"], ran["report"]) == ("mine", f"{mine}/reports/mine.html")
    assert {"N", "precision", "recall"} <= ran["results"][0].keys()
    assert {"claim", "verdict"} <= ran["claims"][0].keys()
    assert {row["store"] for row in tell("doctor")["stores"]} >= {"tensors", "metrics", "warehouse"}
    planned = tell("refresh", "mine", "--dry-run")
    assert (planned["study"], planned["state"], planned["why"]) == ("mine", "fresh", {})


def test_the_shell_completes_studies_assets_and_tables(mine: Path) -> None:
    context = typer.Context(get_command(app))
    context.params = {"home": mine}
    assert options.complete_study(context, "mi") == ["mine", "mistral-7b", "mistral-7b-random"]
    assert options.complete_relation("head_t") == ["head_taxonomy"]
    assert "tensors" in options.complete_asset("")
    context.params = {"home": mine / "studies.yaml" / "below"}
    assert options.complete_study(context, "mi") == ["mistral-7b", "mistral-7b-random"]


def test_studies_that_need_a_gpu_are_refused_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = {f"{name}{twin}" for name in ("llama-2-7b", "gemma-7b", "mistral-7b") for twin in ("", "-random")}
    rows = [json.loads(line) for line in attention_geometry("studies", "--json", home=tmp_path).text.splitlines()]
    assert {row["study"] for row in rows if row["state"] == "not run; needs a GPU"} == large
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "The study needs a GPU (needs_gpu)" in attention_geometry("run", "gemma-7b", home=tmp_path).complaint
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    checks.check_device("auto", needs_gpu=True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="has 1 CUDA devices"):
        checks.check_device("cuda:1")


# --- tour, schema and assets ---


def test_a_question_shows_its_statement_and_its_answer(landed_root: Path) -> None:
    shown = attention_geometry("tour", 11, home=landed_root)
    text = render_example(list_examples()[10], "small")
    assert (shown.code, shown.errors) == (0, "")
    assert list_examples()[10].meaning in shown.text
    assert text in shown.text
    assert shown.text.split(";\n", 1)[1].split()[:4] == ["layer", "Retriever", "Mixer", "Reset"]
    alone = attention_geometry("tour", 11, "--study", "small", "--sql", home=landed_root).text
    assert alone == f"-- {list_examples()[10].meaning}\n{text}\n"
    rows = json.loads(attention_geometry("sql", "--format", "json", home=landed_root, stdin=alone).text)
    assert list(rows[0])[:4] == ["layer", "Retriever", "Mixer", "Reset"]


def test_the_schema_lists_what_there_is_and_describes_one() -> None:
    assert attention_geometry("schema", "--html").text == render_catalogue()
    listed = attention_geometry("schema").text
    assert all(name in listed for name in ("selection_counts", "claims", "best_n", "weighted_level"))
    described = attention_geometry("schema", "selection").text
    assert described.startswith("view selection\none row per (study, sequence, query, layer, head, n)\n")
    assert "f_r_min" in described
    assert "best_n(measure := 'f_r_max', first_n := 2, last_n := NULL)" in attention_geometry("schema", "best_n").text
    assert "no table, view or macro 'selections'" in attention_geometry("schema", "selections").complaint
    assert "omit it to see 'selection'" in attention_geometry("schema", "selection", "--html").complaint


# --- terminals and pipes ---


def run_in_shell(line: str, **variables: str) -> tuple[int, bytes, str]:
    """Exit code, standard output and standard error of the command line in a shell."""
    done = subprocess.run(
        ["bash", "-c", line.replace("AG", str(PROGRAM))],
        env=environment(**variables),
        capture_output=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.slow
def test_a_terminal_of_latin_1_keeps_what_it_has_and_formats_are_utf_8(tmp_path: Path) -> None:
    line = f"AG sql \"SELECT 'é ρ' AS a\" --home {tmp_path} --format "
    code, shown, errors = run_in_shell(f"{line} table", PYTHONIOENCODING="latin-1")
    assert (code, errors) == (0, "")
    assert r"é \u03c1" in shown.decode("latin-1")
    assert run_in_shell(f"{line} json", PYTHONIOENCODING="latin-1") == (0, '[{"a": "é ρ"}]\n'.encode(), "")


@pytest.mark.slow
def test_output_that_nobody_reads_is_no_error() -> None:
    assert run_in_shell("AG tour | true; exit ${PIPESTATUS[0]}") == (0, b"", "")
    assert run_in_shell("AG sql 'FROM range(1000000)' --format csv | head -n 1; exit ${PIPESTATUS[0]}")[::2] == (0, "")
    assert run_in_shell("AG tour >&-") == (0, b"", "")
    assert run_in_shell("AG tour 99 >&- 2>&-") == (1, b"", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_that_is_full_is_named_as_such() -> None:
    code, _, errors = run_in_shell("AG tour > /dev/full")
    said = "attention-geometry: Standard output cannot be written (No space left on device); redirect it to a disk"
    assert (code, errors) == (1, f"{said} with free space\n")


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
