"""Metrics and fits on a Dask cluster: bytes as on threads, nothing lost with a worker, refusals of one line."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from sysconfig import get_python_version
from threading import Timer
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from dask import config as dask_config

from dagster_project.analysis import cluster, measurement
from dagster_project.analysis.metrics import Metrics
from dagster_project.assets import metrics as measuring
from dagster_project.assets import summaries
from dagster_project.assets.catalogue import find_asset
from dagster_project.study.home import Home
from dagster_project.study.settings import DaskSettings, Study
from storage.errors import UserError
from storage.files import parts
from storage.files.places import LocalPlace
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.blas import blas_threads, two_blas_threads
from tests.dagster_project import making
from tests.dagster_project.drawn_study import NAME, STUDY, several, write_tensors
from tests.dagster_project.driver import files
from tests.memory import trace
from tests.storage.earlier import rewrite

if TYPE_CHECKING:
    from distributed import LocalCluster

distributed = pytest.importorskip("distributed", reason="distributed, Dask's scheduler, is not installed")

LAYERS, SEQUENCES, WORKERS = 12, 3, 2


def on(address: str, study: Study = STUDY) -> Study:
    """The study, computed on a cluster."""
    return study.model_copy(update={"dask": DaskSettings(scheduler=address)})


def with_tensors(home: Home, layers: int = LAYERS) -> Home:
    """A data root with tensors alone."""
    drawn, axes = several(layers * SEQUENCES // 2), {"attention": 1, "values": 0, "first_key": 1, "learned_sink": 1}
    sequences = []
    for own in (drawn[first::SEQUENCES] for first in range(SEQUENCES)):  # of two layers each, which become those of one
        joined = {name: np.concatenate([each[name] for each in own], axis) for name, axis in axes.items()}
        sequences.append(own[0] | joined)
    write_tensors(home, sequences)
    return home


def open_metrics(home: Home) -> Metrics:
    """What is measured of the study."""
    return Metrics.of(home, NAME, SequenceStore.open(home.tensors(NAME), TENSORS), STUDY.analysis)


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """What threads make."""
    home = with_tensors(Home(tmp_path_factory.mktemp("threads")))
    assert making.measured(making.measure(home, NAME, STUDY)) == LAYERS
    return home


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LocalCluster]":
    """A cluster that tests share, whose workers are started again if they end; see ``dask``."""
    folder = tmp_path_factory.mktemp("dask")
    options = {"threads_per_worker": 1, "dashboard_address": None, "local_directory": str(folder)}
    with (
        mock.patch.dict(os.environ, OMP_NUM_THREADS="1"),
        distributed.LocalCluster(n_workers=WORKERS, **options) as started,
    ):
        yield started


@pytest.fixture
def dask(processes: "LocalCluster", patient: None) -> "LocalCluster":  # noqa: ARG001 (in this order)
    """The cluster with all its workers, which have joined and imported what they need."""
    processes.scale(WORKERS)
    with cluster.use_scheduler(processes.scheduler_address) as client:
        assert client is not None
        client.wait_for_workers(WORKERS, timeout=120)
        client.run(import_module, cluster.__name__)
    return processes


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine is no failure."""
    monkeypatch.setattr(cluster, "CONNECT", 60.0)
    monkeypatch.setattr(cluster, "PATIENCE", 120.0)


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A folder in which tasks say that they have begun, and wait for the file ``go``."""
    (tmp_path / "held").mkdir()
    return tmp_path / "held"


def hold(folder: Path, free: int) -> Callable[..., None]:
    """The task of a worker, which waits before it measures a layer from ``free`` on."""

    def hold_and_measure(layer: int, *, layers: Any) -> None:
        import os
        import time

        from dagster_project.assets import metrics as measuring

        if layer >= free:
            (folder / f"waits-{layer}-{os.getpid()}").touch()
            while not (folder / "go").exists():
                time.sleep(0.01)
        measuring._measure_one(layer, layers=layers)

    return hold_and_measure


def count_waiting(held: Path) -> int:
    """How many processes are waiting."""
    return len({path.name.rpartition("-")[2] for path in held.glob("waits-*")})


@pytest.fixture
def when_in_hand(held: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int, Callable[[], None]], None]:
    """Have something done in mid-run: so many layers are written, so many workers have another in hand."""

    def arrange(written: int, in_hand: int, act: Callable[[], None]) -> None:
        completed = cluster._iterate_completed

        def acting(client: Any, futures: Any) -> Iterator[Any]:
            for count, found in enumerate(completed(client, futures), start=1):
                yield found
                if count == written:
                    deadline = time.monotonic() + 60
                    while count_waiting(held) < in_hand and time.monotonic() < deadline:
                        time.sleep(0.01)
                    assert count_waiting(held) == in_hand
                    act()

        monkeypatch.setattr(cluster, "_iterate_completed", acting)
        monkeypatch.setattr(measuring, "_measure_one", hold(held, free=written))

    return arrange


@pytest.mark.slow
def test_fits_and_expectations_are_those_of_threads(
    threads: Home, dask: "LocalCluster", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Home(tmp_path)
    parallel = ("assumption_similarity", "assumption_weights", "bounds_in_expectation", "separability")
    for place in ("tensors", "metrics"):
        (tmp_path / place).symlink_to(threads.root / place)
    grid = {"head_dim": [4], "n_keys": [8], "n": [2], "beta": [1.0], "lambda_sink": [0.1, 1.0], "rho_0": [0.0]}
    analysis = STUDY.analysis.model_dump() | {"monte_carlo": grid | {"draws": 2}}
    study = Study.model_validate(STUDY.model_dump() | {"analysis": analysis})
    connections: list[str] = []
    monkeypatch.setattr(
        summaries, "use_scheduler", lambda where: connections.append(where) or cluster.use_scheduler(where)
    )
    for name in ("assumption_norms", *parallel):
        making.summarise(threads, NAME, study, [name])
        making.summarise(elsewhere, NAME, on(dask.scheduler_address, study), [name])
        assert connections[-2:] == ["threads", dask.scheduler_address if name in parallel else "threads"]
        for table in find_asset(name).tables:
            here, there = (making.rows(home, NAME, table) for home in (threads, elsewhere))
            assert repr(there) == repr(here) != "[]"


@pytest.mark.slow
def test_an_interrupted_run_leaves_no_worker_at_work(
    tmp_path: Path, dask: "LocalCluster", held: Path, when_in_hand: Callable[..., None]
) -> None:
    def interrupt() -> None:
        Timer(0.5, (held / "go").touch).start()
        raise KeyboardInterrupt

    home = with_tensors(Home(tmp_path))
    when_in_hand(1, WORKERS, interrupt)
    with pytest.raises(KeyboardInterrupt):
        making.measure(home, NAME, on(dask.scheduler_address))
    assert (held / "go").exists(), "the lock is kept until no worker has a layer in hand"
    assert len(open_metrics(home).find_missing()) == LAYERS - 1, "which it does not write"


@pytest.mark.slow
def test_a_run_waits_for_workers_of_one_that_was_killed(
    tmp_path: Path, dask: "LocalCluster", held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, prepare, go = with_tensors(Home(tmp_path), 2), measuring._prepare, held / "go"

    def wait(_: int) -> None:
        import time

        while not go.exists():
            time.sleep(0.01)

    def checked(*given: Any) -> None:
        assert (held / "go").exists()
        prepare(*given)

    monkeypatch.setattr(measuring, "_prepare", checked)
    with cluster.use_scheduler(dask.scheduler_address) as killed:
        assert killed is not None
        task = killed.submit(wait, 0, key=f"{home.metrics(NAME)} layer-0")
        while not any(killed.run(cluster._has_running_task, str(home.metrics(NAME))).values()):
            time.sleep(0.01)
        task.release()
        Timer(0.3, (held / "go").touch).start()
        assert making.measured(making.measure(home, NAME, on(dask.scheduler_address))) == 2


@pytest.mark.slow
def test_workers_that_cannot_are_refused(tmp_path: Path, dask: "LocalCluster", monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster.use_scheduler(dask.scheduler_address) as client:
        assert client is not None
        with cluster.place_probes(client, [LocalPlace(tmp_path)]) as probes:
            cluster.check_probes(probes)
            assert {LocalPlace(path) for path in tmp_path.iterdir()} == set(probes)
        assert not list(tmp_path.iterdir())
        with monkeypatch.context() as patched:
            patched.setattr(LocalPlace, "write", lambda *_: None)
            with (
                pytest.raises(UserError, match=f"The Dask worker tcp://[^ ]+ does not see {tmp_path}; put tensors and"),
                cluster.place_probes(client, [LocalPlace(tmp_path)]),
            ):
                pass
        with monkeypatch.context() as patched:  # as a worker that joins after those that were there have been asked
            patched.setattr(cluster, "find_versions", lambda _: {cluster.PYTHON: get_python_version(), "numpy": "0.1"})
            for compute in (
                lambda: cluster.run_in_parallel([os.getpid]),
                lambda: list(cluster.compute_each(client, abs, [1], what="number", of=LocalPlace(tmp_path))),
            ):
                with pytest.raises(
                    UserError, match=r"worker tcp://.* has version [^ ]+ of numpy; install version 0\.1 "
                ):
                    compute()
    monkeypatch.syspath_prepend(tmp_path)
    for library, said in (
        ("numpy", "has version [^ ]+ of numpy; install version 0.1 there,"),
        ("no-such", "lacks no-such; "),
    ):
        recorded = tmp_path / f"{library.replace('-', '_')}-0.1.dist-info" / "METADATA"
        recorded.parent.mkdir()
        recorded.write_text(f"Metadata-Version: 2.1\nName: {library}\nVersion: 0.1\n")
        monkeypatch.setattr(cluster, "LIBRARIES", (library,))
        cluster.find_versions.cache_clear()
        with (
            pytest.raises(UserError, match=f"The Dask worker tcp://[^ ]+ {said}"),
            cluster.use_scheduler(dask.scheduler_address),
        ):
            pass
    cluster.find_versions.cache_clear()


@pytest.mark.long
def test_a_worker_killed_in_mid_run_changes_no_byte(
    tmp_path: Path, threads: Home, dask: "LocalCluster", held: Path, when_in_hand: Callable[..., None]
) -> None:
    home = with_tensors(Home(tmp_path / "data"))

    def kill_one() -> None:
        os.kill(dask.workers[1].pid, signal.SIGKILL)
        (held / "go").touch()

    when_in_hand(2, WORKERS, kill_one)
    made = making.measure(home, NAME, on(dask.scheduler_address))
    assert making.measured(made) == LAYERS
    found, wanted = (files(Path(str(of.metrics(NAME)))) for of in (home, threads))
    assert found == wanted
    assert not list(home.root.rglob("*.partial"))


@pytest.mark.long
def test_a_number_that_ends_its_workers_is_named_and_so_is_their_absence(
    tmp_path: Path, dask: "LocalCluster", monkeypatch: pytest.MonkeyPatch
) -> None:
    def deadly(number: int, others: str) -> int:
        if number == 3:
            while not Path(others).exists():  # what a worker has beside it when it ends is held to be as deadly
                time.sleep(0.01)
            os._exit(1)
        return number

    def allow(failures: int, dask_scheduler: Any) -> None:
        dask_scheduler.allowed_failures = failures

    with cluster.use_scheduler(dask.scheduler_address) as client:
        assert client is not None
        client.run_on_scheduler(allow, 0)
        others = tmp_path / "others"
        results = cluster.compute_each(
            client, deadly, [0, 1, 3], what="sequence", of=LocalPlace(tmp_path), others=str(others)
        )
        assert {next(results), next(results)} == {(0, 0), (1, 1)}
        others.touch()
        with pytest.raises(UserError, match="1 Dask workers that were given sequence 3 ended, most likely for lack of"):
            next(results)
        client.run_on_scheduler(allow, 3)
        dask.scale(0)
        monkeypatch.setattr(cluster, "PATIENCE", 1.0)
        with pytest.raises(UserError, match=r"has no workers; start some \(dask worker tcp://[\d.:]+\)"):
            list(
                cluster.compute_each(client, deadly, [0], what="sequence", of=LocalPlace(tmp_path), others=str(others))
            )


def describe(home: Home) -> tuple[Metrics, measuring._Layers]:
    """What is measured, and the tensors as a task is told of them."""
    metrics = open_metrics(home)
    return metrics, measuring._Layers(home.tensors(NAME), metrics.folder, metrics.made_of, STUDY.analysis, None)


@pytest.mark.parametrize("replaced_at", [0, 1, SEQUENCES - 1])
def test_tensors_replaced_meanwhile_are_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced_at: int
) -> None:
    home, measure = with_tensors(Home(tmp_path), 2), measurement._measure_sequence
    metrics, layers = describe(home)

    def replace(tensors: SequenceStore, queries: Any, analysis: Any, layer: int, sequence: int, *rest: Any) -> Any:
        if sequence == replaced_at:
            rewrite(Path(str(home.tensors(NAME))), provenance=tensors.provenance | {"study": "another"})
        return measure(tensors, queries, analysis, layer, sequence, *rest)

    monkeypatch.setattr(measurement, "_measure_sequence", replace)
    with pytest.raises(UserError, match="were replaced while a Dask worker measured them; run again"):
        measuring._measure_one(0, layers=layers)
    assert metrics.find_missing() == [0, 1]
    assert not list(Path(str(metrics.folder)).rglob("*.p*"))


def test_where_a_study_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cluster.ADDRESS_VARIABLE, raising=False)
    assert cluster.select_scheduler(STUDY) == "threads"
    monkeypatch.setenv(cluster.ADDRESS_VARIABLE, "tls://scheduler.example:8786")
    assert cluster.select_scheduler(STUDY) == "tls://scheduler.example:8786"
    assert cluster.select_scheduler(on("threads")) == "threads", "a study's own setting counts more"
    monkeypatch.setenv(cluster.ADDRESS_VARIABLE, "scheduler.example")
    with pytest.raises(UserError, match=r"^DASK_SCHEDULER_ADDRESS must be the address of a Dask scheduler"):
        cluster.select_scheduler(STUDY)


def test_an_unreachable_scheduler_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT", 0.3)
    for how, said in (("tcp", "check that it runs"), ("tls", ".* with its certificates in Dask's")):
        expected = rf"The Dask scheduler at {how}://127.0.0.1:9 cannot be reached; {said}"
        with pytest.raises(UserError, match=expected), cluster.use_scheduler(f"{how}://127.0.0.1:9"):
            pass
    assert dask_config.get("scheduler", None) is None, "nothing that is computed later waits for that client"


def test_without_distributed_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with (
        pytest.raises(UserError, match=r"pip install 'attention-geometry\[cluster\]'"),
        cluster.use_scheduler("tcp://127.0.0.1:9"),
    ):
        pass


def test_a_task_has_one_blas_thread() -> None:
    with two_blas_threads():
        assert cluster.run_in_parallel([blas_threads] * 3) == [{1}] * 3
        assert blas_threads() == {2}


@pytest.mark.slow
def test_memory_of_a_layer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sequences there are, once the rows of each table are written together that are."""
    for module in (parts, measurement):
        monkeypatch.setattr(module, "ROW_GROUP", 2**4)
    taken = []
    for sequences in (4, 12):
        home = Home(tmp_path / str(sequences))
        write_tensors(home, several(sequences, keys=400))
        metrics, layers = describe(home)
        measuring._measure_one(0, layers=layers)  # what is imported or compiled once is there
        taken.append(trace(lambda layers=layers: measuring._measure_one(1, layers=layers))[1])
        bound = measurement.estimate_memory(metrics.tensors, STUDY.analysis)
        assert 0.2 * bound < taken[-1] < bound
    assert taken[1] < 1.1 * taken[0]
