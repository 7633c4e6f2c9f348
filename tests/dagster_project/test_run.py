"""``run`` makes what is missing or stale and nothing else; with nothing to do it writes nothing and loads little."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_project.study.home import Home
from tests.dagster_project import making
from tests.dagster_project.driver import attention_geometry, environment, files
from tests.dagster_project.making import NAMES

ROWS = ("sql", "FROM selection ORDER BY ALL", "--format", "csv")

MODULES = """
import json, sys
from dagster_project.command.cli import main

sys.argv[0] = "attention-geometry"
try:
    main()
except SystemExit as end:
    assert not end.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
"""A command, and the names of all modules that are loaded when it has ended."""


def states(home: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of all files and folders of a data root, locks and Dagster's records among them."""
    return {
        path.relative_to(home).as_posix(): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in (home, *home.rglob("*"))
    }


def changed(before: dict[str, tuple[bytes, int]], after: dict[str, tuple[bytes, int]]) -> set[str]:
    """The files that were written, but Dagster's records and locks."""
    assert before.keys() <= after.keys()
    written = {name for name, state in after.items() if state != before.get(name)}
    return {name for name in written if not name.startswith(("dagster", "locks", "warehouse/.")) and "." in name[1:]}


def test_with_nothing_to_do_nothing_is_written_and_little_is_loaded(copied: Path) -> None:
    before = states(copied)
    done = subprocess.run(
        [sys.executable, "-c", MODULES, "run", "mine", "--home", copied],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    said, modules = done.stderr.strip().split("\n")
    assert said == f"mine: all {len(NAMES)} assets are current"
    heavy = {"torch", "dagster", "transformers", "datasets", "altair", "pandas", "scipy.stats"}
    assert not heavy & set(json.loads(modules))
    assert f"Report: {copied}/reports/mine.html" in done.stdout
    assert "mine: mean over heads and sequences" in done.stdout
    assert states(copied) == before


@pytest.mark.long
def test_what_follows_from_a_forced_asset_is_rebuilt_too(copied: Path) -> None:
    before, rows = states(copied), attention_geometry(*ROWS, home=copied)
    done = attention_geometry("run", "mine", "--force", "head_patterns", home=copied)
    assert done.code == 0, done.errors
    rebuilt = ("head_patterns", "warehouse", "claims", "report")
    assert done.errors.startswith(f"mine: current: all but {', '.join(rebuilt)}\n")
    parts = {path.relative_to(copied).as_posix() for path in copied.glob("parts/mine/head_patterns-*/*")}
    written = {*parts, "warehouse/mine.duckdb", "warehouse/open.sql"}
    assert changed(before, states(copied)) == written | {"reports/mine.html", "index.html"}
    assert attention_geometry(*ROWS, home=copied) == rows


def test_what_cannot_be_forced_is_refused(mine: Path) -> None:
    before = files(mine)
    refused = attention_geometry("run", "mine", "--force", "metrics", home=mine).complaint
    assert refused == f"Study 'mine' asks for no asset 'metrics'; its assets are {', '.join(NAMES)}"
    assert "There is no study 'nine'" in attention_geometry("run", "nine", "--force", "report", home=mine).complaint
    assert files(mine) == before


@pytest.mark.long
@pytest.mark.parametrize("lost", [False, True])
def test_metrics_that_are_damaged_are_rebuilt_by_the_run_that_reads_them(copied: Path, lost: bool) -> None:
    rows = attention_geometry(*ROWS, home=copied)
    part = making.find_measured(Home(copied), "mine", "selection_counts")
    part.unlink() if lost else part.write_bytes(part.read_bytes()[:-8] + b"damaged!")
    done = attention_geometry("run", "mine", "--force", "warehouse", home=copied)
    assert done.code == 0, done.errors
    said = r"mine: The table .*/layer-000-.*/selection_counts\.parquet cannot be read .*; rebuilding it\n"
    assert re.search(said, done.errors)
    assert attention_geometry("doctor", "--verify", home=copied).code == 0
    assert attention_geometry(*ROWS, home=copied) == rows
