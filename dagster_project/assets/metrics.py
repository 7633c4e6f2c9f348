"""The asset ``selection_metrics``: from the tensor store to the metrics store, sequence by sequence."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from dagster_project.analysis.cluster import (
    await_idle,
    check_probes,
    compute_each,
    count_threads,
    is_wanted,
    place_probes,
    select_scheduler,
    use_scheduler,
)
from dagster_project.analysis.devices import CUDA_WORKERS, find_cuda_device, translate_device_errors
from dagster_project.analysis.measurement import (
    Arrays,
    Block,
    clear_arrays,
    estimate_sequence_memory,
    list_blocks,
    make_arrays,
    measure_block,
    measure_sequence,
)
from dagster_project.analysis.memory import check_memory
from dagster_project.analysis.metrics_store import (
    METRICS_VERSION,
    READ,
    MetricsInputs,
    build_metrics_provenance,
    compute_provenance_digest,
    find_usable_store,
    prepare_metrics_store,
)
from dagster_project.assets.asset import (
    MISSING,
    UNREADABLE,
    Asset,
    AssetResult,
    Extent,
    Provenance,
    Snapshot,
    Work,
    wrap_place,
)
from dagster_project.assets.space import check_space
from dagster_project.study.home import Home
from dagster_project.study.settings import MEASURED, AnalysisSettings
from geometry.threads import one_blas_thread
from reports.findings.numbers import count
from storage.errors import NewerError, UserError
from storage.files.places import Place
from storage.zarr.arrays import SELECTION, TENSORS
from storage.zarr.sequences import SequenceStore
from storage.zarr.space import estimate_sequence_bytes

if TYPE_CHECKING:
    from dask.delayed import Delayed
    from distributed import Client
    from tqdm import tqdm

T = TypeVar("T")

logger = logging.getLogger(__name__)

WAITING = 2
"""Sequences whose results are in memory: one is computed while the one before is finished and written."""

PLANNED = 64
"""Sequences whose tasks are planned together, so that a plan does not grow with the study."""


def make_metrics(work: Work) -> AssetResult:
    """Compute the missing metrics of a study from its tensor store, sequence by sequence.

    On threads, the blocks of a sequence run in parallel, one BLAS thread each, while the sequence before is written; at
    most a block for each core (``geometry.selection.layers.estimate_layer_bytes``) and the results of ``WAITING``
    sequences are in memory. If the tensors were computed on a CUDA device and one is available, the metrics are too,
    with at most ``CUDA_WORKERS`` blocks in memory and on the device. On a cluster sequences run in parallel, each on
    the CPU of a worker. ``estimate_sequence_memory`` bounds both.

    Raises
    ------
    UserError
        If another process works on the study, its tensors are incomplete, there is too little space, or there are
        unfinished metrics of another device; or as for ``use_scheduler``, ``place_probes`` and ``compute_each`` of
        ``dagster_project.analysis.cluster``.
    """
    from storage.warehouse.rows import count_selection_rows

    home, name, study = work.home, work.name, work.study
    started, scheduler = time.monotonic(), select_scheduler(study)
    with work.lock():
        tensors = SequenceStore.open(home.tensors(name), TENSORS).require_complete()
        home.discard_replaced(name)
        device = find_cuda_device(tensors.provenance) if scheduler == "threads" else None
        if not home.metrics(name).exists():
            check_space(Extent(home, name, study, tensors.sizes, missing=0), work.assets)
        made_of = MetricsInputs(name, tensors, study.analysis, device)
        standing = None if work.force else find_usable_store(home.metrics(name), made_of)
        is_whole = standing is not None and not standing.find_missing()
        with use_scheduler("threads" if is_whole else scheduler) as client:
            if client is not None:
                await_idle(client, home.metrics(name))  # so that no worker of a killed run writes to the new one
            metrics = prepare_metrics_store(home.metrics(name), made_of, force=work.force)
            missing = metrics.find_missing()
            if client is None:
                _measure_locally(tensors, metrics, study.analysis, missing, device)
            else:
                _measure_on_cluster(client, tensors, metrics, study.analysis, missing)
    selections = count_selection_rows(metrics)
    seconds = time.monotonic() - started
    measured = f"{count(selections, 'selection')} of {count(len(missing), 'sequence')}"
    logger.info("%s: %s measured, %.1f s", name, measured, seconds)
    return AssetResult(
        {
            "path": home.metrics(name),
            "dagster/row_count": selections,
            "sequences measured in this run": len(missing),
            "bytes": metrics.measure_size(),
            "seconds": seconds,
        }
    )


def _measure_locally(
    tensors: SequenceStore,
    metrics: SequenceStore,
    analysis: AnalysisSettings,
    missing: Sequence[int],
    device: str | None,
) -> None:
    """Measure sequences on all cores or on a device."""
    from dask import threaded  # for a name of a scheduler, Dask imports distributed
    from dask.base import compute

    threads, name = CUDA_WORKERS if device else count_threads(), metrics.provenance["study"]
    if missing:
        what, needed = f"Measuring one sequence of '{name}' in {threads} threads", (threads, min(WAITING, len(missing)))
        check_memory(what, estimate_sequence_memory(tensors, analysis, *needed), "use a machine with more memory")

    def measure(sequence: int, block: Block, arrays: Arrays, _before: object) -> None:
        measure_block(tensors, analysis, sequence, block, arrays, device)

    blocks, held = list_blocks(tensors), [make_arrays(metrics.sizes) for _ in missing[:WAITING]]
    with ThreadPoolExecutor(threads, "measure") as pool, one_blas_thread, _show_progress(len(missing)) as bar:
        for first in range(0, len(missing), PLANNED):
            planned = _plan(measure, blocks, metrics, missing[first : first + PLANNED], held, bar)
            with translate_device_errors(name, device):
                compute(*planned, scheduler=threaded.get, pool=pool)


def _plan(
    measure: Callable[[int, Block, Arrays, object], None],
    blocks: Sequence[Block],
    metrics: SequenceStore,
    sequences: Sequence[int],
    held: Sequence[Arrays],
    bar: "tqdm[Any]",
) -> "list[Delayed]":
    """What measures each sequence: a task for each block, and one that then writes all.

    Blocks of a sequence may begin before those of the one before have ended, so that no thread waits in between, but
    not before the one whose arrays of ``held`` they get is written.
    """
    from dask.delayed import delayed

    written: list[Delayed] = []
    for number, sequence in enumerate(sequences):
        arrays = held[number % len(held)]
        before = written[number - len(held)] if number >= len(held) else None
        measured = [delayed(partial(measure, sequence, block, arrays), pure=False)(before) for block in blocks]
        written.append(delayed(partial(_write, metrics, sequence, arrays, bar), pure=False)(measured))
    return written


def _write(metrics: SequenceStore, sequence: int, arrays: Arrays, bar: "tqdm[Any]", _measured: object) -> None:
    """Write a sequence once it is measured.

    Its arrays are for another sequence then: new ones would cost the time to map their pages.
    """
    metrics.write(sequence, arrays)
    clear_arrays(arrays)
    bar.update()


@dataclass(frozen=True)
class _Stores:
    """What a task of a cluster opens by itself, so that nothing large is sent."""

    tensors: Place
    metrics: Place
    made_of: str
    """Digest of the provenance of the metrics store, by which a task notices that the store has been replaced."""
    analysis: AnalysisSettings
    probes: tuple[Place, ...]
    """Folders whose files a worker sees if it shares these places with the client."""


def _measure_on_cluster(
    client: "Client",
    tensors: SequenceStore,
    metrics: SequenceStore,
    analysis: AnalysisSettings,
    missing: Sequence[int],
) -> None:
    """Measure sequences on the workers of a cluster, one per thread."""
    with place_probes(client, (tensors.path, metrics.path)) as probes:
        stores = _Stores(tensors.path, metrics.path, compute_provenance_digest(metrics), analysis, probes)
        with closing(
            compute_each(client, _measure_one, missing, what="sequence", of=metrics.path, stores=stores)
        ) as measured:
            for _ in _show_progress(len(missing), measured):
                pass


def _show_progress(total: int, given: Iterable[T] | None = None) -> "tqdm[T]":
    """A progress bar over sequences on a terminal."""
    from tqdm import tqdm

    return tqdm(given, total=total, desc="metrics", unit="sequence", disable=None)


def _measure_one(sequence: int, *, stores: _Stores) -> None:
    """The task of a worker: measure one sequence and write it.

    If this worker was taken for dead, its run may have ended, or its store may have been replaced since; then nothing
    is written.
    """
    tensors, metrics = _open_stores(stores)
    arrays = make_arrays(metrics.sizes)
    measure_sequence(tensors, stores.analysis, sequence, arrays, go_on=_check_wanted)
    _check_not_replaced(stores)
    metrics.write(sequence, arrays, before_ledger=partial(_check_not_replaced, stores))


def _check_wanted() -> None:
    """Raise UserError, which is not shown to users, in a task that is no longer wanted."""
    if not is_wanted():
        msg = "The run that started this task of a Dask worker has ended"
        raise UserError(msg)


@lru_cache(maxsize=4)
def _open_stores(stores: _Stores) -> tuple[SequenceStore, SequenceStore]:
    """Open the stores of a task once per process; raise UserError if the worker does not share them with the client."""
    check_probes(stores.probes)
    return SequenceStore.open(stores.tensors, TENSORS), SequenceStore.open(stores.metrics, SELECTION)


def _check_not_replaced(stores: _Stores) -> None:
    """Raise UserError if the metrics store that the task was made for has been replaced."""
    if compute_provenance_digest(SequenceStore.open(stores.metrics, ())) != stores.made_of:
        msg = f"The metrics {stores.metrics} were replaced while a Dask worker computed them; run again"
        raise UserError(msg)


def read_recorded(snapshot: Snapshot) -> Provenance | str:
    """What the metrics of a study were made of, or why that is not known."""
    metrics = snapshot.metrics
    if metrics is None:
        return _read_other_version(snapshot.home.metrics(snapshot.name))
    missing, total = len(metrics.find_missing()), metrics.sizes["sequence"]
    lacking = f"{missing} of {total} sequences missing" if missing else None
    return _parse_provenance(metrics.provenance, lacking)


def _read_other_version(path: Place) -> Provenance | str:
    """What a store was made of that cannot be opened as one of this version, since it may have other arrays."""
    if not path.exists():
        return MISSING
    try:
        provenance = _parse_provenance(SequenceStore.open(path, ()).provenance)
    except NewerError:
        raise
    except UserError:
        return UNREADABLE
    return UNREADABLE if provenance.version == METRICS_VERSION else provenance


def build_expected(snapshot: Snapshot) -> Provenance | None:
    """What the metrics of a study would be made of now; None without tensors."""
    if snapshot.tensors is None:
        return None
    return _parse_provenance(build_metrics_provenance(snapshot.name, snapshot.tensors, snapshot.study.analysis))


def _parse_provenance(provenance: Mapping[str, Any], lacking: str | None = None) -> Provenance:
    return Provenance(
        provenance.get("metrics_version"),
        {"analysis": provenance.get("analysis", {})},
        {"tensors": (provenance.get("study"), provenance.get("tensors"))},
        lacking,
    )


def _estimate_bytes(extent: Extent) -> int:
    """Uncompressed bytes of the sequences that are still to be measured."""
    study = extent.study
    sizes = {**extent.sizes, "kappa": len(study.analysis.kappas), "n": max(study.query_positions)}
    exists = extent.home.metrics(extent.name).exists()
    return estimate_sequence_bytes(SELECTION, sizes) * (extent.missing if exists else study.sequences)


SELECTION_METRICS = Asset(
    name="selection_metrics",
    about="How well a ball around s_N separates the N selected keys from the others, for every head and every N.",
    parents=("tensors",),
    kinds=("dask", "zarr"),
    version=lambda: str(METRICS_VERSION),
    make=make_metrics,
    expected=build_expected,
    recorded=read_recorded,
    places=wrap_place(Home.metrics),
    settings=MEASURED,
    reads=READ,
    space=_estimate_bytes,
)
