"""``run`` makes what is missing or stale and nothing else; what it leaves behind, and what another run then does.

With nothing to do it writes nothing and loads little; what a newer version made is not replaced unless it is told to.
"""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from dagster_project.study.home import Home
from storage.errors import UserError, refuse_newer
from tests.dagster_project import making
from tests.dagster_project.conftest import settings
from tests.dagster_project.driver import PROGRAM, attention_geometry, environment, files, instance_of, run_apart
from tests.dagster_project.making import NAMES
from tests.dagster_project.recorded import TINY, write_studies
from tests.storage.earlier import recorded, rewrite, rewrite_inputs

ROWS = ("sql", "FROM selection ORDER BY ALL", "--format", "csv")


def states(home: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of all files and folders of a data root, locks and Dagster's records among them."""
    return {
        path.relative_to(home).as_posix(): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in (home, *home.rglob("*"))
    }


def test_with_nothing_to_do_nothing_is_written_and_little_is_loaded(copied: Path) -> None:
    before = states(copied)
    done, modules = run_apart("run", "mine", "--home", copied)
    assert (done.code, done.errors) == (0, f"mine: all {len(NAMES)} assets are current")
    assert not {"torch", "dagster", "transformers", "datasets", "altair", "pandas", "scipy.stats"} & modules
    assert f"Report: {copied}/reports/mine.html" in done.text
    assert "mine: mean over heads and sequences" in done.text
    assert states(copied) == before


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


ASSETS = ("tensors", "selection_metrics", "warehouse", "report")


def test_dagster_has_the_partition_and_its_materialisations(mine: Path) -> None:
    with instance_of(mine) as instance:
        assert "mine" in instance.get_dynamic_partitions("study")
        assert "gpt2" in instance.get_dynamic_partitions("study")
        (run,) = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.SUCCESS
        assert run.tags["dagster/partition"] == "mine"
        assert run.job_name == "study"
        for asset in ASSETS:
            assert instance.get_materialized_partitions(dg.AssetKey(asset)) == {"mine"}
            event = instance.get_latest_materialization_event(dg.AssetKey(asset))
            metadata = event.asset_materialization.metadata
            assert Path(str(metadata["path"].value)).exists()
            assert int(metadata["bytes"].value) > 0


def test_metrics_of_anything_else_are_not_landed(copied: Path) -> None:
    rewrite_inputs(copied / "metrics" / "mine.parts", tensors={"study": "mine"})
    said = "lack 2 of 2 layers, or are of other settings or tensors; run: attention-geometry run mine"
    with pytest.raises(UserError, match=said):
        making.land(Home(copied), "mine")


def test_a_shipped_name_cannot_be_taken(inputs: Path, tmp_path: Path) -> None:
    taken = attention_geometry("run", "--name", "gpt2", *settings(inputs), home=tmp_path)
    assert "'gpt2' with other settings" in taken.complaint
    assert files(tmp_path) == {}


@pytest.mark.long
def test_fresh_rebuilds_everything(copied: Path) -> None:
    making.find_measured(Home(copied), "mine", "selection_counts").unlink()  # whatever became of a part
    before, rows = states(copied), attention_geometry(*ROWS, home=copied)
    done = attention_geometry("run", "mine", "--fresh", home=copied)
    assert done.code == 0, done.errors
    assert "4 of 4 sequences extracted" in done.errors
    assert {line.split(":")[0] for line in done.errors.splitlines()} == {"mine"}, "in a pipe, plain lines only"
    assert not set("\r\x1b") & set(done.errors + done.text)
    after = states(copied)
    assert all(after[name] != found for name, found in before.items() if "/c/" in name)
    assert attention_geometry(*ROWS, home=copied) == rows


@pytest.mark.long  # pairs of runs in processes of their own
def test_two_new_studies_are_run_at_once_on_a_fresh_data_root(tmp_path: Path) -> None:
    write_studies(tmp_path, one=TINY, two=TINY)
    running = [
        subprocess.Popen(
            [PROGRAM, "run", name, "--home", tmp_path],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("one", "two")
    ]
    said = [process.communicate(timeout=600)[0] for process in running]
    assert all("Traceback" not in text for text in said), said
    assert [process.returncode for process in running] == [0, 0], said
    landed = attention_geometry("sql", "SELECT count(*) AS c FROM studies", "--format", "csv", home=tmp_path)
    assert landed.text == '"c"\n2\n'


def tensors(home: Path) -> None:
    store = home / "tensors" / "mine.zarr"
    rewrite(store, provenance=recorded(store) | {"extraction_version": 99})


def format_of_tensors(home: Path) -> None:
    rewrite(home / "tensors" / "mine.zarr", format_version=99)


def metrics(home: Path) -> None:
    rewrite_inputs(home / "metrics" / "mine.parts", metrics_version=99)


def database(home: Path) -> None:
    """One that has a table, too, which this version does not know."""
    with duckdb.connect(home / "warehouse" / "mine.duckdb") as connection:
        connection.execute("CREATE TABLE of_the_future (i INTEGER)")
        connection.execute('UPDATE studies SET provenance = json_merge_patch(provenance, \'{"landing": "99-0a"}\')')


@pytest.mark.one_case
@pytest.mark.parametrize("newer", [tensors, format_of_tensors, metrics, database])
def test_what_a_newer_version_made_is_refused_in_a_line_and_listed(copied: Path, newer: Callable[[Path], None]) -> None:
    newer(copied)
    before = files(copied)
    for arguments in (("run", "mine"), ("run", "mine", "--force", "report")):
        refused = attention_geometry(*arguments, home=copied).complaint
        assert "was made by a newer version of attention-geometry (version 99" in refused
        assert refused.endswith("upgrade, or replace it anyway: attention-geometry run mine --fresh")
    listed = attention_geometry("refresh", "mine", "--dry-run", home=copied, COLUMNS="500")
    assert "a newer version of attention-geometry" in listed.text
    assert files(copied) == before


@pytest.mark.parametrize(("was", "now"), [(4, 4), (3, "4"), ("7-ff", "7-0a"), (None, 4), ("3e4abc", "9e"), (9**9, 4)])
def test_no_other_version_is_newer(was: object, now: object) -> None:
    refuse_newer("It", was, now, "mine")
