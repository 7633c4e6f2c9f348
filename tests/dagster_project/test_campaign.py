"""A hundred bad inputs: each is refused with a documented exit code, no traceback, and nothing left behind."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dagster_project.conftest import settings
from tests.dagster_project.driver import attention_geometry, files

pytestmark = pytest.mark.long  # a hundred commands

REFUSED, USAGE = 1, 2

WRONG = {
    "context_length": (0, -1, 1, "abc", "", 1.5, 10**12),
    "sequences": (0, -1, "abc", "", 2.5, 10**9),
    "seed": (-1, "abc", ""),
    "dtype": ("int8", "", "float64", "FLOAT32"),
    "device": ("tpu", "", "cuda:99", "cuda:-1", "cuda:", "CPU", "mps:0"),
    "device_map": ("nowhere", ""),
    "batch_size": (0, -4, "many", "", 1.5),
    "values": ("int8", ""),
    "queries": ("a", "1,,2", "-1", "999999", "", "3,3", "1.5"),
    "twin": ("nosuch", "", "-", "../x"),
    "model": ("/no/where", "", ".", "/dev/null", "/etc/passwd", "a b", "..//..", "x" * 5000, "\udcff", "~nobody/x"),
    "corpus": ("/no/where.txt", "", "/dev/null", "/no/where/", "x" * 5000 + ".txt", "\udcff.txt", "a.pdf", "a\nb.txt"),
    "column": ("",),
    "split": ("",),
    "revision": ("v2", ""),
}
"""Options of a new study and what cannot be given to them."""

SQL = (
    "", ";", "SELEC 1", "SELECT", "SELECT * FROM nosuch", "SELECT nosuch FROM studies", "DROP TABLE studies",
    "ATTACH 'x'",
    "COPY studies TO '/tmp/x.csv'", "SELECT * FROM read_csv('/etc/passwd')", "SELECT 'a", "SELECT 1 1",
    "INSTALL httpfs",
    "SELECT CAST('x' AS INTEGER)", "SELECT '\udcff'", "PRAGMA nosuch", "SET memory_limit='1PB'", "SELECT $1",
)  # fmt: skip
"""Statements that cannot be answered."""

OTHERS = (
    ("nosuch",), ("run",), ("run", "nosuch"), ("run", "mine", "--seed", "3"), ("run", "mine", "--force", "nosuch"),
    ("run", "mine", "--name", "other"), ("run", "--flavour"), ("run", "--name", "../x"),
    ("run", "--name", "mine", "--seed", "5"),
    ("extract", "nosuch"), ("extract", "mine", "--shard", "0/0"), ("extract", "mine", "--shard", "5/4"),
    ("extract", "mine", "--shard", "a/b"), ("finalise", "nosuch"), ("drop", "nosuch"), ("clear", "nosuch", "--yes"),
    ("report", "nosuch"), ("report", "mine", "--images", "/dev/null/x"), ("compare", "mine"),
    ("compare", "mine", "nosuch"),
    ("export", "mine", "--format", "nosuch", "--out", "x"), ("export", "mine", "--by", "nosuch", "--out", "x"),
    ("export", "nosuch", "--out", "x"), ("export", "mine", "--group", "most", "--out", "x"),
    ("export", "mine", "--out", "/dev/null/x"), ("sql", "FROM x", "--file", "x=/no/where.csv"),
    ("sql", "FROM x", "--file", "/etc/passwd"),
    ("sql", "FROM x", "--file", "x=/etc/passwd"), ("sql", "FROM x", "--file", "x y=s.csv"),
    ("tour", "0"), ("tour", "99"),
    ("tour", "abc"), ("tour", "1", "--study", "nosuch"), ("tour", "--format", "nosuch"), ("tour", "--sql"),
    ("schema", "nosuch"),
    ("schema", "--format", "nosuch"), ("assets", "--format", "nosuch"), ("sql", "SELECT 1", "--format", "nosuch"),
    ("refresh", "nosuch"), ("refresh", "--report"), ("publish", "/dev/null"), ("publish", "/dev"),
    ("publish", "/"), ("publish", "~nobody-of-this-name/x"), ("publish", "x" * 300), ("publish", "loop"),
    ("publish", "loop/x"), ("publish", "home"), ("export", "mine", "--out", "/"),
    ("export", "mine", "--out", "/dev/null"),
    ("export", "mine", "--out", "/dev/null", "--overwrite"), ("export", "mine", "--out", "pipe", "--overwrite"),
    ("export", "mine", "--out", "~nobody-of-this-name/x"), ("export", "mine", "--out", "x" * 300),
    ("export", "mine", "--out", "loop"), ("export", "mine", "--out", "home/studies.yaml"),
    ("export", "mine", "--out", "home", "--format", "duo"), ("export", "mine", "--out", "\udcff/" + "y" * 256),
    *(("sql", "FROM x", "--file", f"x={path}") for path in ("/dev/zero", "pipe", "loop", "/", "home")),
    *(("sql", "FROM x", "--file", f"x={path}.csv") for path in ("~nobody-of-this-name/x", "x" * 300, "pipe")),
    ("report", "mine", "--images", "loop"), ("report", "mine", "--tables", "~nobody-of-this-name/x"),
    ("ui", "--port", "x"), ("ui", "--port", "99999"), ("ui", "--origin", "x"),
)  # fmt: skip
"""Other commands that cannot be obeyed."""


def bad(inputs: Path) -> Iterator[tuple[object, ...]]:
    """All of them."""
    for option, given in WRONG.items():
        for value in given:
            yield "run", "--name", "new", *settings(inputs, **{option: value})
    yield from (("sql", statement) for statement in SQL)
    yield from OTHERS


def test_a_hundred_bad_inputs(mine: Path, inputs: Path, tmp_path: Path) -> None:
    home = shutil.copytree(mine, tmp_path / "home")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    assert attention_geometry("sql", "SELECT 1", home=home).code == 0  # names this copy's path in open.sql
    before, wrong = files(home), []
    commands = list(bad(inputs))
    assert len(commands) >= 100
    for command in commands:
        done = attention_geometry(*command, home=home, cwd=tmp_path)
        said = [line for line in done.errors.splitlines() if line.startswith("attention-geometry: ")]
        right = done.code == USAGE or (done.code == REFUSED and len(said) == 1)
        if not right or "Traceback" in done.errors or files(home) != before:
            wrong.append((command, done.code, done.errors[-500:]))
    assert wrong == []
    assert {path.name for path in tmp_path.iterdir()} == {"home", "loop", "pipe"}
