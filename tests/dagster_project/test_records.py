"""What a run leaves behind: a study of the data root's own, Dagster's records; what another run then does."""

from pathlib import Path

import dagster as dg
import pytest

import sql
from dagster_project.study.home import Home
from storage.errors import UserError
from tests.dagster_project import making
from tests.dagster_project.conftest import settings
from tests.dagster_project.driver import attention_geometry, files, instance_of
from tests.storage.earlier import rewrite_inputs

ASSETS = ("tensors", "selection_metrics", "warehouse", "report")
CHECKS = {
    "tensors": {"ledger_complete", "rows_sum_to_one"},
    "warehouse": {*sql.list_names("checks"), "row_count"},
}
ROWS = ("sql", "FROM selection ORDER BY ALL", "--format", "csv")


def stores(home: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file of the Zarr stores."""
    return {
        name: (content, (home / name).stat().st_mtime_ns)
        for name, content in files(home).items()
        if name.startswith(("tensors", "metrics")) and (home / name).is_file()
    }


def test_dagster_has_the_partition_its_materialisations_and_checks(mine: Path) -> None:
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
        keys = [dg.AssetCheckKey(dg.AssetKey(asset), name) for asset, names in CHECKS.items() for name in names]
        records = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        assert {key: record.status.value for key, record in records.items()} == dict.fromkeys(keys, "SUCCEEDED")


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
    before, rows = stores(copied), attention_geometry(*ROWS, home=copied)
    done = attention_geometry("run", "mine", "--fresh", home=copied)
    assert done.code == 0, done.errors
    assert "4 of 4 sequences extracted" in done.errors
    assert {line.split(":")[0] for line in done.errors.splitlines()} == {"mine"}, "in a pipe, plain lines only"
    assert not set("\r\x1b") & set(done.errors + done.text)
    assert all(stores(copied)[name] != found for name, found in before.items() if "/c/" in name)
    assert attention_geometry(*ROWS, home=copied) == rows


def test_settings_with_a_recorded_study_are_refused(mine: Path) -> None:
    assert "define a new one with --name" in attention_geometry("run", "mine", "--seed", 3, home=mine).complaint
    assert "run --help" in attention_geometry("run", "mine", "--name", "mine", home=mine).complaint
