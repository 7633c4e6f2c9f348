"""Checkpoints, a text and finished studies that the tests of this folder share; what is made once is only read."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from dagster_project.analysis import passes
from dagster_project.study.home import Home
from dagster_project.study.studies import locate_shipped_file
from tests.dagster_project import drawn_study, making
from tests.dagster_project.driver import attention_geometry
from tests.extract.tiny import text, write_checkpoint
from tests.shared import shared

CONTEXT, SEQUENCES = 48, 4


def settings(inputs: Path, **changes: object) -> list[object]:
    """The options that describe the study of these tests, without the controls of a new study, to save their time."""
    given = {
        "model": inputs / "llama",
        "corpus": inputs / "book.txt",
        "context_length": CONTEXT,
        "sequences": SEQUENCES,
        **changes,
    }
    options = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", value)]
    return [*options, "--no-twin", "--no-probe", "--no-every-query"]


@pytest.fixture(scope="session", autouse=True)
def _no_disk() -> Iterator[None]:
    """SQLite does not wait for the disk: no test of these cuts the power, and Dagster creates many tables."""
    event.listen(Engine, "connect", skip_disk)
    yield
    event.remove(Engine, "connect", skip_disk)


def skip_disk(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF").close()


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees where others kept Dagster's records."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints ``llama`` (grouped heads) and ``mistral`` (windows of 16) and ``book.txt``."""

    def build(folder: Path) -> None:
        write_checkpoint(folder / "llama", "llama", num_hidden_layers=2)
        write_checkpoint(folder / "mistral", "mistral", num_hidden_layers=2)
        (folder / "book.txt").write_text(text(3000), encoding="utf-8")

    return shared(tmp_path_factory, "inputs", build)


@pytest.fixture(scope="session")
def mine(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the finished study ``mine`` of the checkpoint ``llama``; only read, by several processes."""

    def build(home: Path) -> None:
        shipped = locate_shipped_file().read_bytes()
        done = attention_geometry("run", "--name", "mine", *settings(inputs), home=home)
        assert done.code == 0, done.errors
        assert f"Report: {home}/reports/mine.html" in done.text
        assert locate_shipped_file().read_bytes() == shipped, "the product's own studies.yaml was changed"

    return shared(tmp_path_factory, "llama", build)


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """All tables of the drawn study; those of one pass were read in blocks of some sequences of a layer."""
    home = drawn_study.measured(tmp_path_factory.mktemp("drawn"), drawn_study.several())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(passes, "BLOCK_BYTES", 4 * 2 * 4 * drawn_study.QUERIES[-1])
        making.summarise(home, drawn_study.NAME, drawn_study.STUDY)
    return home


@pytest.fixture
def copied(mine: Path, tmp_path: Path) -> Path:
    """A copy of the data root ``mine``, to be changed."""
    return shutil.copytree(mine, tmp_path / "copied")
