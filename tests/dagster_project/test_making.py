"""Small tables made together: those made each alone, and what is made stays if one fails."""

import shutil
from pathlib import Path

import pytest

from dagster_project.analysis import processes
from dagster_project.assets.asset import Work
from dagster_project.assets.catalogue import find_asset, make_each
from dagster_project.assets.summaries import SUMMARIES
from dagster_project.study.home import Home
from storage.errors import UserError
from storage.warehouse.rows import MEASURED
from tests.dagster_project import making
from tests.dagster_project.drawn_study import NAME, STUDY, measured, several

WANTED = [asset for asset in SUMMARIES if asset.is_wanted(STUDY)]


@pytest.fixture(scope="module")
def tensors(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data root with metrics, in which no table has been made."""
    return measured(tmp_path_factory.mktemp("drawn"), several())


@pytest.fixture
def work(tensors: Home, tmp_path: Path) -> Work:
    """A study in a data root of its own."""
    return making.work(Home(Path(shutil.copytree(tensors.root, tmp_path / "copied"))), NAME, STUDY)


def read_tables(work: Work) -> dict[str, list[dict[str, object]]]:
    """The rows of all small tables."""
    return {table: making.rows(work.home, work.name, table) for asset in WANTED for table in asset.tables}


@pytest.fixture
def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes compute, however small a study is."""
    monkeypatch.setattr(processes, "FEW_SELECTIONS", 0)
    monkeypatch.setattr(processes, "count_processes", lambda: 2)


@pytest.mark.usefixtures("_apart")
def test_metrics_are_the_same_from_processes(work: Work) -> None:
    def read() -> dict[str, bytes]:
        return {str(part): part.read_bytes() for part in Path(str(work.home.metrics(NAME))).glob("*/*.parquet")}

    before = read()
    assert len(before) == len(MEASURED) * 2
    making.make(work.home, NAME, ["selection_metrics"], STUDY, force=True)
    assert read() == before


@pytest.mark.slow
@pytest.mark.parametrize("where", ["here", "apart"])
def test_tables_made_together_are_those_made_alone(work: Work, where: str, request: pytest.FixtureRequest) -> None:
    if where == "apart":
        request.getfixturevalue("_apart")
    make_each(work, WANTED)
    together = read_tables(work)
    dates = {path: path.stat().st_mtime_ns for path in work.home.parts(NAME).glob("*/*.parquet")}
    make_each(work, WANTED, ["top_keys"])
    assert [path.stem for path, date in dates.items() if path.stat().st_mtime_ns != date] == ["top_keys"]
    for asset in WANTED:
        making.make(work.home, NAME, [asset.name], STUDY, force=True)
    assert together == read_tables(work)


def test_what_is_made_before_a_mistake_stays_and_no_other_process_interferes(work: Work) -> None:
    making.find_measured(work.home, NAME, "selection_counts").unlink()
    some = [find_asset(name) for name in ("assumption_weights", "regimes_by_sequence")]
    with pytest.raises(UserError, match=r"selection_counts\.parquet cannot be read") as refused:
        make_each(work, some)
    assert "\n" not in str(refused.value)
    assert {part.stem for part in work.home.parts(NAME).glob("*/*.parquet")} == {*some[0].tables}
    with work.lock(), pytest.raises(UserError, match="Another process is working on study"):
        make_each(work, some)
