"""What the command line prints on terminals and pipes of every kind: the right words, exit code and width."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_project.command.streams import spell_in_ascii
from tests.dagster_project.driver import CHECKOUT, PROGRAM, attention_geometry, environment


def through_shell(line: str, **variables: str) -> tuple[int, bytes, str]:
    """Exit code, standard output and standard error of the command line in a shell."""
    done = subprocess.run(
        ["bash", "-c", line.replace("AG", str(PROGRAM))],
        env=environment(**variables),
        capture_output=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr.decode()


def test_a_terminal_without_greek_letters_gets_their_names() -> None:
    assert "".join(map(spell_in_ascii, "ρ_0 ≤ κ·Δ, ξ, é, 𝒳, ‖α‖…")) == "rho_0 <= kappa*Delta, xi, e, X, ||alpha||..."
    code, shown, errors = through_shell("AG schema sink_similarity", PYTHONIOENCODING="ascii")
    assert (code, errors) == (0, "")
    assert "rho_0" in shown.decode("ascii")


@pytest.mark.slow
def test_a_terminal_of_latin_1_keeps_what_it_has(tmp_path: Path) -> None:
    query = "SELECT 'é ρ' AS a"
    code, shown, errors = through_shell(f'AG sql "{query}" --home {tmp_path}', PYTHONIOENCODING="latin-1")
    assert (code, errors) == (0, "")
    assert "é rho" in shown.decode("latin-1")
    for form, said in (("json", '[{"a": "é ρ"}]\n'), ("csv", '"a"\n"é ρ"\n')):
        line = f'AG sql "{query}" --format {form} --home {tmp_path}'
        assert through_shell(line, PYTHONIOENCODING="latin-1") == (0, said.encode(), "")


@pytest.mark.slow
def test_output_that_nobody_reads_is_no_error() -> None:
    assert through_shell("AG tour | true; exit ${PIPESTATUS[0]}") == (0, b"", "")
    assert through_shell("AG tour | head -n 1 | wc -l; exit ${PIPESTATUS[0]}") == (0, b"1\n", "")
    assert through_shell("AG tour >&-") == (0, b"", "")
    assert through_shell("AG tour 99 >&- 2>&-") == (1, b"", "")


@pytest.mark.one_case
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("command", ["tour", "--version", "sql 'SELECT 1' --format csv --home HOME"])
def test_output_that_is_full_is_named_as_such(command: str, tmp_path: Path) -> None:
    code, _, errors = through_shell(f"AG {command} > /dev/full".replace("HOME", str(tmp_path)))
    said = "attention-geometry: Standard output cannot be written (No space left on device); redirect it to a disk"
    assert (code, errors) == (1, f"{said} with free space\n")


def test_a_statement_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    complaint = attention_geometry("sql", "SELECT '\udcff'", home=tmp_path).complaint
    assert complaint == "The statement is not UTF-8 at character 9; encode it as UTF-8"


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("command", [("schema",), ("schema", "selection"), ("tour",), ("assets",), ("studies",)])
def test_tables_keep_to_the_columns_that_are_asked_for(command: tuple[str, ...], columns: int, tmp_path: Path) -> None:
    home = tmp_path if command == ("studies",) else None
    shown = attention_geometry(*command, home=home, COLUMNS=str(columns)).text
    assert max(map(len, shown.splitlines())) <= columns


def test_closed_streams_give_their_numbers_to_no_file(tmp_path: Path) -> None:
    """A file that is opened while standard output is closed would get its number, and with it all that is printed."""
    code = (
        "import os, pathlib; from dagster_project.command import streams; streams.prepare(); "
        "pathlib.Path('told').write_text(str(os.open('file', os.O_CREAT | os.O_WRONLY) > 2))"
    )
    command = ["bash", "-c", f'"{sys.executable}" -c "{code}" <&- >&- 2>&-']
    subprocess.run(command, env={"PYTHONPATH": str(CHECKOUT)} | dict(os.environ), cwd=tmp_path, check=True)
    assert (tmp_path / "told").read_text() == "True"
