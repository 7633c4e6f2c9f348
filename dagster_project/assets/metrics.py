"""The asset ``selection_metrics``: from the tensor store to the parts of each layer."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

from dagster_project.analysis.cluster import (
    await_idle,
    check_probes,
    compute_each,
    count_threads,
    is_wanted,
    limit_threads,
    place_probes,
    select_scheduler,
    use_scheduler,
)
from dagster_project.analysis.devices import CUDA_WORKERS, find_cuda_device, translate_device_errors
from dagster_project.analysis.measurement import estimate_bytes, estimate_memory, measure_rows
from dagster_project.analysis.memory import check_memory
from dagster_project.analysis.metrics import METRICS_VERSION, READ, Metrics, list_recorded
from dagster_project.analysis.processes import compute_in_processes, count_processes, is_worthwhile, start_processes
from dagster_project.assets.asset import (
    MISSING,
    UNREADABLE,
    Asset,
    AssetResult,
    Extent,
    Provenance,
    Work,
    wrap_place,
)
from dagster_project.assets.space import check_space
from dagster_project.study.home import Home
from dagster_project.study.settings import MEASURED, AnalysisSettings
from geometry.threads import one_blas_thread
from reports.findings.numbers import count
from storage.errors import UserError, refuse_newer
from storage.files.parts import remove_others, write_parts
from storage.files.places import Place
from storage.warehouse import rows
from storage.zarr.arrays import TENSORS
from storage.zarr.layers import list_attending_layers
from storage.zarr.sequences import SequenceStore

if TYPE_CHECKING:
    from distributed import Client
    from tqdm import tqdm

T = TypeVar("T")

logger = logging.getLogger(__name__)


def make_metrics(work: Work) -> AssetResult:
    """Measure the layers of a study that are missing, from its tensor store.

    On threads, layers are measured in parallel, one BLAS thread each, at most one for each core. If the tensors were
    computed on a CUDA device and one is available, at most ``CUDA_WORKERS`` layers are measured there. On a cluster
    each layer is measured on the CPU of a worker, which writes it. ``estimate_memory`` bounds both.

    ``UserError`` if another process works on the study, its tensors are incomplete or dropped, there is too little
    space, or other layers were measured on another device; or as ``dagster_project.analysis.cluster`` raises it.
    """
    home, name, study = work.home, work.name, work.study
    started, scheduler = time.monotonic(), select_scheduler(study)
    with work.lock():
        tensors = SequenceStore.open(home.tensors(name), TENSORS).require_complete()
        home.discard_replaced(name)
        device = find_cuda_device(tensors.provenance) if scheduler == "threads" else None
        metrics = Metrics.of(home, name, tensors, study.analysis)
        missing = _measure_missing(work, metrics, device)
    seconds, selections = time.monotonic() - started, metrics.count_selections()
    measured = f"{count(selections, 'selection')}, {count(len(missing), 'layer')}"
    logger.info("%s: %s measured, %.1f s", name, measured, seconds)
    return AssetResult(
        {
            "path": metrics.folder,
            "dagster/row_count": selections,
            "layers measured in this run": len(missing),
            "bytes": metrics.folder.measure_size(),
            "seconds": seconds,
        }
    )


def _measure_missing(work: Work, metrics: Metrics, device: str | None) -> list[int]:
    """Measure the layers that are missing, with ``force`` all; return them."""
    _refuse_other_device(work, metrics, device or "cpu")
    is_whole = not work.force and not metrics.find_missing()
    with use_scheduler("threads" if is_whole else select_scheduler(work.study)) as client:
        if client is not None:
            await_idle(client, metrics.folder)  # so that no worker of a killed run writes beside this one
        if missing := list_attending_layers(metrics.tensors) if work.force else metrics.find_missing():
            _prepare(work, metrics)
            analysis = work.study.analysis
            layers = _Layers(metrics.tensors.path, metrics.folder, metrics.made_of, analysis, device)
            if client is None:
                _measure_locally(layers, metrics, missing)
            else:
                _measure_on_cluster(client, layers, missing)
    return missing


def _refuse_other_device(work: Work, metrics: Metrics, device: str) -> None:
    """Refuse to measure layers on this device if others were measured on another."""
    made_with = metrics.read_libraries()
    if made_with and made_with["device"] != device and not work.force and metrics.find_missing():
        raise UserError(
            f"The metrics {metrics.folder} were started on the device '{made_with['device']}' and would be continued "
            f"on '{device}'; run again on the former, or delete them to start again"
        )


def _prepare(work: Work, metrics: Metrics) -> None:
    """Make room for layers that are measured, once it is known that they can be.

    Refused is to measure dropped tensors, to write where a link leads nowhere, and to replace what is newer.
    """
    for array in READ:
        metrics.tensors.array(array)
    if not metrics.folder.exists():
        metrics.folder.refuse_link()
    for made_of in list_recorded(metrics.folder) if not work.force else ():
        refuse_newer(f"The metrics {metrics.folder}", made_of.get("metrics_version"), METRICS_VERSION, work.name)
    if work.force:
        metrics.folder.remove()
    for layer in list_attending_layers(metrics.tensors):
        remove_others(metrics.folder, metrics.build_inputs(layer))
    if len(metrics.find_missing()) == len(list_attending_layers(metrics.tensors)):
        check_space(Extent(work, metrics.tensors.sizes, missing=0))


@dataclass(frozen=True)
class _Layers:
    """What a task measures, and where it writes; on a cluster it opens the tensors itself: nothing large is sent."""

    tensors: Place
    folder: Place
    made_of: Mapping[str, Any]
    analysis: AnalysisSettings
    device: str | None
    probes: tuple[Place, ...] = ()
    """Folders whose files a worker sees if it shares these places with the client."""


def _measure(layers: _Layers, tensors: SequenceStore, layer: int, **settings: Any) -> None:
    """Measure a layer and write its parts."""
    metrics = Metrics(layers.folder, tensors, layers.made_of)
    measured = measure_rows(tensors, layers.analysis, layer, layers.device, **settings)
    libraries = {library: version(library) for library in ("dask", "numba", "numpy", "torch")}
    made_with = libraries | {"device": layers.device or "cpu"}
    write_parts(layers.folder, rows.MEASURED, measured, metrics.build_inputs(layer), made_with)


def _measure_locally(layers: _Layers, metrics: Metrics, missing: Sequence[int]) -> None:
    """Measure layers on a device, or on all cores: of a large study in processes."""
    name, tensors = layers.made_of["study"], metrics.tensors
    with translate_device_errors(name, layers.device), _show_progress(len(missing)) as bar:
        if layers.device or not is_worthwhile(metrics.count_selections()):
            threads = CUDA_WORKERS if layers.device else limit_threads(max(metrics.queries) + 1) or count_threads()
            _check_memory(layers, tensors, f"{threads} threads", threads)
            with ThreadPoolExecutor(threads, "measure") as pool, one_blas_thread:
                for _ in pool.map(partial(_measure, layers, tensors), missing):
                    bar.update()
            return
        _check_memory(layers, tensors, f"{count_processes()} processes", count_processes())
        start_processes()
        _measure(layers, tensors, missing[0])  # here, so that a first run of all compiles kernels once, and says so
        bar.update()
        tasks = {f"layer {layer}": partial(_measure, layers, tensors, layer) for layer in missing[1:]}
        compute_in_processes(tasks, lambda _: bar.update(), what=f"the metrics of '{name}'")


def _check_memory(layers: _Layers, tensors: SequenceStore, where: str, at_once: int) -> None:
    """Refuse to measure so many layers at once for which there is too little memory."""
    needed = estimate_memory(tensors, layers.analysis, at_once)
    check_memory(f"Measuring '{layers.made_of['study']}' in {where}", needed, "use a machine with more memory")


def _measure_on_cluster(client: "Client", layers: _Layers, missing: Sequence[int]) -> None:
    """Measure layers on the workers of a cluster, one per thread."""
    with place_probes(client, (layers.tensors, layers.folder)) as probes:
        given = _Layers(layers.tensors, layers.folder, layers.made_of, layers.analysis, None, probes)
        tasks = compute_each(client, _measure_one, missing, what="layer", of=layers.folder, layers=given)
        with closing(tasks) as measured:
            for _ in _show_progress(len(missing), measured):
                pass


def _show_progress(total: int, given: Iterable[T] | None = None) -> "tqdm[T]":
    """A progress bar over layers on a terminal."""
    from tqdm import tqdm

    return tqdm(given, total=total, desc="metrics", unit="layer", disable=None)


def _measure_one(layer: int, *, layers: _Layers) -> None:
    """The task of a worker.

    If this worker was taken for dead, its run may have ended, or its tensors may have been replaced since; then nothing
    is written. If not, it writes what another writes.
    """
    check_probes(layers.probes)
    _measure(layers, SequenceStore.open(layers.tensors, TENSORS), layer, go_on=partial(_check_wanted, layers))


def _check_wanted(layers: _Layers) -> None:
    """Raise UserError in a task that is no longer wanted, or whose tensors have been replaced."""
    if not is_wanted():
        raise UserError("The run that started this task of a Dask worker has ended")  # which is not shown to users
    if SequenceStore.open(layers.tensors, ()).provenance != layers.made_of["tensors"]:
        raise UserError(f"The tensors {layers.tensors} were replaced while a Dask worker measured them; run again")


def _compare(work: Work) -> tuple[Provenance | str, Provenance | None]:
    metrics = work.metrics
    if metrics is None:
        return MISSING, None
    missing, total = metrics.find_missing(), len(list_attending_layers(metrics.tensors))
    now = _parse_provenance(metrics.made_of)
    if len(missing) < total or not total:
        return replace(now, lacking=f"{len(missing)} of {total} layers missing" if missing else None), now
    none = UNREADABLE if metrics.folder.list_folders() else MISSING
    return next(map(_parse_provenance, list_recorded(metrics.folder)), none), now


def _parse_provenance(made_of: Mapping[str, Any]) -> Provenance:
    return Provenance(
        made_of.get("metrics_version"),
        {"analysis": made_of.get("analysis", {})},
        {"tensors": (made_of.get("study"), made_of.get("tensors"))},
    )


def _estimate_bytes(extent: Extent) -> int:
    """Uncompressed bytes of what is still to be measured."""
    study = extent.work.study
    sizes = {**extent.sizes, "kappa": len(study.analysis.kappas), "n": max(study.query_positions)}
    return estimate_bytes(sizes) * sizes["layer"] * study.sequences


SELECTION_METRICS = Asset(
    name="selection_metrics",
    about="How well a ball around s_N separates the N selected keys from the others, for every head and every N.",
    parents=("tensors",),
    kinds=("dask", "parquet"),
    version=lambda: str(METRICS_VERSION),
    make=make_metrics,
    compare=_compare,
    places=wrap_place(Home.metrics),
    settings=MEASURED,
    reads=READ,
    space=_estimate_bytes,
)
