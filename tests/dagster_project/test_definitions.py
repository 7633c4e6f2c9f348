"""Dagster's side: definitions that load anywhere, checks that stop a run, a schedule, a sensor, pools."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest
import zarr

import sql
from dagster_project.analysis.claims.judging import CLAIMS
from dagster_project.assets.catalogue import STEPS, find_asset
from dagster_project.command.runs import run_assets
from dagster_project.definitions import build_definitions, defs
from dagster_project.defs.assets import configure_assets, select_steps
from dagster_project.defs.resources import data_root as data_root_of_environment
from dagster_project.records.registration import LOCK_TAG, mark_dead_runs, register_studies, use_instance
from dagster_project.study.home import HOME_VARIABLE, Home, is_held
from storage.errors import UserError
from storage.files.parts import INPUTS, locate_part, read_part, write_parts
from storage.warehouse.rows import MEASURED
from tests.dagster_project import making
from tests.dagster_project.driver import attention_geometry, environment, files, instance_of
from tests.dagster_project.making import NAMES


@pytest.fixture(scope="module")
def loaded() -> dg.Definitions:
    return defs()


EIGHT = {"tensors", "selection_metrics", "tables", "effects", "warehouse", "claims", "report", "family"}


def test_definitions_are_loadable(loaded: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(loaded)
    keys = {key.to_user_string() for key in loaded.resolve_asset_graph().get_all_asset_keys()}
    assert keys == EIGHT == {*STEPS.values(), "family"}


def test_one_table_of_many_is_made_alone(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with that configuration in the web UI; its numbers are those of all that were made."""
    monkeypatch.setenv(HOME_VARIABLE, str(copied))
    home, config = Home(copied), configure_assets(["assumption_norms", "head_patterns"], force="assumption_norms")
    dates = {part: part.stat().st_mtime_ns for part in home.parts("mine").glob("*/*.parquet")}
    with dg.DagsterInstance.ephemeral() as instance:
        register_studies(instance, home)
        job = defs().resolve_job_def("study")
        given = {"run_config": config, "asset_selection": select_steps(["assumption_norms"])}
        result = job.execute_in_process(instance=instance, partition_key="mine", **given)
        (made,) = result.asset_materializations_for_node("tables")
    again = {part.stem for part, date in dates.items() if part.stat().st_mtime_ns != date}
    assert again == {*find_asset("assumption_norms").tables}
    rows = {name.removeprefix("rows of "): made.metadata[name].value for name in made.metadata if "rows of" in name}
    assert rows.keys() == again | {*find_asset("head_patterns").tables}
    assert made.metadata["dagster/row_count"].value == sum(rows.values())


def test_the_records_say_which_checks_passed_and_which_claims_a_study_supports(mine: Path) -> None:
    asked = ("sql", "SELECT claim, verdict, sentence FROM claims", "--format", "json")
    told = {row["claim"]: row for row in json.loads(attention_geometry(*asked, home=mine).text)}
    verdicts = {name: row["verdict"] for name, row in told.items()}
    assert set(verdicts) == {claim.name for claim in CLAIMS}
    assert {"not supported", "not testable"} <= set(verdicts.values())
    with instance_of(mine) as instance:
        run = instance.get_runs(limit=1)[0]
        assert run.status is dg.DagsterRunStatus.SUCCESS
        kinds = {dg.DagsterEventType.ASSET_CHECK_EVALUATION}
        events = [entry.dagster_event for entry in instance.all_logs(run.run_id, of_type=kinds)]
    found = {event.event_specific_data.check_name: event.event_specific_data for event in events}
    checks = {"ledger_complete", "rows_sum_to_one", "row_count", *sql.list_names("checks")}
    assert checks <= found.keys() - verdicts.keys()
    told_of = {(found[name].passed, found[name].severity) for name in found.keys() - verdicts.keys()}
    assert told_of == {(True, dg.AssetCheckSeverity.ERROR)}
    for claim, verdict in verdicts.items():
        assert found[claim].passed == (verdict == "supported"), claim
        assert found[claim].description == f"mine: {told[claim]['sentence']}"
        assert found[claim].severity is dg.AssetCheckSeverity.WARN


def test_the_instance_has_telemetry_off_and_one_step_a_pool(tmp_path: Path) -> None:
    with mock.patch.dict(os.environ, environment(), clear=True), use_instance(Home(tmp_path)) as instance:
        assert instance.telemetry_enabled is False
        pools = instance.get_concurrency_config().pool_config
        assert pools.default_pool_limit == 1
        assert pools.pool_granularity.value == "op"
        assert os.environ["DAGSTER_HOME"] == str(tmp_path / "dagster")


def test_a_dagster_home_that_is_no_folder_is_refused(mine: Path) -> None:
    refused = attention_geometry("run", "mine", "--force", "report", home=mine, DAGSTER_HOME="/nowhere/at/all")
    assert "DAGSTER_HOME" in refused.complaint


# --- automation ---


@pytest.fixture
def instance(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv(HOME_VARIABLE, str(mine))
    with dg.DagsterInstance.local_temp(str(tmp_path)) as found:
        yield found


def test_the_sensor_registers_studies_and_starts_nothing(loaded: dg.Definitions, instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("study", ["of-another-data-root"])
    with dg.build_sensor_context(instance=instance) as context:
        tick = loaded.resolve_sensor_def("studies_registered").evaluate_tick(context)
    assert tick.run_requests == []
    registered = set(instance.get_dynamic_partitions("study"))
    assert f"{len(registered - {'of-another-data-root'})} studies are registered" in tick.skip_message
    assert registered >= {"mine", "gpt2", "of-another-data-root"}


def test_a_study_deleted_by_hand_is_no_partition_any_more(copied: Path) -> None:
    home = Home(copied)
    with dg.DagsterInstance.local_temp(str(home.dagster)) as own:
        own.add_dynamic_partitions("study", ["deleted-by-hand"])
        register_studies(own, home)
        assert set(own.get_dynamic_partitions("study")) >= {"mine", "gpt2"}
        assert "deleted-by-hand" not in own.get_dynamic_partitions("study")


@pytest.mark.slow
def test_another_project_has_them_beside_its_own(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an asset, a job and an executor of the same names; a study then runs from there, in one process."""
    monkeypatch.setenv(HOME_VARIABLE, str(copied))

    @dg.asset
    def warehouse() -> None:
        """Theirs."""

    job, executor = dg.define_asset_job("study", selection=[warehouse]), dg.multiprocess_executor
    theirs = dg.Definitions([warehouse], jobs=[job], executor=executor)
    merged = dg.Definitions.merge(theirs, build_definitions(pages="https://host.example/geometry/reports"))
    dg.Definitions.validate_loadable(merged)
    keys = {key.to_user_string() for key in merged.resolve_asset_graph().get_all_asset_keys()}
    assert keys == {"warehouse"} | {f"attention_geometry/{name}" for name in EIGHT}
    assert merged.resolve_job_def("study").executor_def is executor
    study = merged.resolve_job_def("attention_geometry_study")
    assert study.executor_def is dg.in_process_executor
    report = dg.AssetKey(["attention_geometry", "report"])
    with dg.DagsterInstance.ephemeral() as instance:
        register_studies(instance, Home(copied))
        result = study.execute_in_process(instance=instance, partition_key="mine", asset_selection=[report])
        (made,) = result.asset_materializations_for_node("attention_geometry__report")
    assert made.metadata["page"] == dg.MetadataValue.url("https://host.example/geometry/reports/mine.html")


def test_a_run_is_marked_as_living_while_its_process_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    home, seen = Home(tmp_path), []

    @dg.asset
    def looking(context: dg.AssetExecutionContext, data_root: dg.ResourceParam[Home]) -> None:
        assert data_root == home
        run = context.instance.get_run_by_id(context.run.run_id)
        assert run.tags[LOCK_TAG] == run.run_id
        assert mark_dead_runs(context.instance, home) == []
        seen.append(run.run_id)

    with dg.DagsterInstance.ephemeral() as instance:
        given = {"instance": instance, "resources": {"data_root": data_root_of_environment}}
        assert dg.materialize([looking], **given).success
        assert dg.materialize([looking], **given, tags={LOCK_TAG: seen[0]}).success, "executed again from the web UI"
    locks = list((tmp_path / "locks" / "runs").iterdir())
    assert {lock.stem for lock in locks} == set(seen)
    assert all(is_held(lock) for lock in locks), "a run ends only after its resources are torn down"


# --- checks stop a run before anything wrong is handed on ---


def unbalanced(home: Path) -> None:
    """Give one key of one head more weight than there is; a sequence is still to be extracted."""
    arrays = zarr.open_group(home / "tensors" / "mine.zarr", mode="r+")
    arrays["attention"][2, 0, 1, 3, 7] += np.float32(0.01)
    arrays["finished"][3] = 0


def disordered(home: Path) -> None:
    """Say that the farthest selected key and the nearest other one are where the counts say they are not.

    A layer is still to be measured.
    """

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: batch[name].to_numpy(zero_copy_only=False).copy() for name in batch.schema.names}
        at = (columns["sequence"] == 0) & (columns["head"] == 2) & (columns["n"] == 5)
        for name, wrong in {"r_min": 1e-3, "r_max": 1e3, "k_in": 5, "k_out": 0}.items():
            columns[name][at] = wrong
        return pa.RecordBatch.from_pydict(columns, schema=batch.schema)

    metrics = making.work(Home(home), "mine").sources.metrics
    inputs = metrics.build_inputs(1)
    parts = {of: read_part(locate_part(metrics.folder, of, inputs)) for of in MEASURED}
    rows = [(of, change(batch) if of == "selection_counts" else batch) for of, part in parts.items() for batch in part]
    write_parts(metrics.folder, MEASURED, rows, inputs, metrics.read_libraries() or {})
    (making.find_measured(Home(home), "mine", "keys").parent / INPUTS).unlink()


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("corrupt", "check", "done"),
    [
        (unbalanced, "rows_sum_to_one", ["tensors"]),
        (disordered, "selections_consistent", ["selection_metrics", "tables", "warehouse"]),
    ],
)
def test_a_check_stops_a_run_before_publishing(
    copied: Path, corrupt: Callable[[Path], None], check: str, done: list[str]
) -> None:
    corrupt(copied)
    published = {name: content for name, content in files(copied).items() if name.startswith(("warehouse", "reports"))}
    stopped = attention_geometry("run", "mine", home=copied)
    assert re.search(rf"\nattention-geometry: Study 'mine' failed a check: .*{check}.*\n\Z", stopped.errors)
    after = {name: content for name, content in files(copied).items() if name.startswith(("warehouse", "reports"))}
    assert after == published
    with instance_of(copied) as instance:
        run = instance.get_runs(limit=1)[0]
        assert run.status is dg.DagsterRunStatus.FAILURE
        kinds = {dg.DagsterEventType.ASSET_MATERIALIZATION}
        events = [entry.dagster_event for entry in instance.all_logs(run.run_id, of_type=kinds)]
    assert [event.asset_key.to_user_string() for event in events] == done


@pytest.mark.long
def test_checks_are_run_of_what_is_current_too_if_it_is_materialised(copied: Path) -> None:
    """As from the web UI."""
    unbalanced(copied)
    with (
        mock.patch.dict(os.environ, environment(), clear=True),
        pytest.raises(UserError, match=r"Study 'mine' failed a check: .*rows_sum_to_one"),
    ):
        run_assets(Home(copied), "mine", NAMES)
