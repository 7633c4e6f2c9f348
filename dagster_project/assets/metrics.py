"""The asset ``selection_metrics``: from the tensor store to the metrics store, sequence by sequence."""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dagster_project.analysis.cluster import (
    await_idle,
    check_probes,
    compute_each,
    is_wanted,
    place_probes,
    select_scheduler,
    use_scheduler,
)
from dagster_project.analysis.memory import check_memory
from dagster_project.assets.asset import (
    MISSING,
    UNREADABLE,
    Asset,
    Check,
    Checked,
    Extent,
    Made,
    MadeOf,
    Snapshot,
    Work,
    wrap_place,
)
from dagster_project.assets.space import check_space
from dagster_project.study.home import Home
from dagster_project.study.studies import MEASURED, AnalysisSettings
from geometry.threads import one_blas_thread
from storage.errors import NewerError, UserError, refuse_newer
from storage.files.locks import hold_lock
from storage.files.places import Place
from storage.zarr import shards
from storage.zarr.arrays import CHUNK_BYTES, SELECTION, TENSORS
from storage.zarr.layers import read_query_positions
from storage.zarr.sequences import SequenceStore
from storage.zarr.space import estimate_sequence_bytes

if TYPE_CHECKING:
    import dask.array as da
    from distributed import Client
    from numpy.typing import NDArray

    from storage.zarr.arrays import LayerSize

T = TypeVar("T")

logger = logging.getLogger(__name__)

METRICS_VERSION = 7
"""Version of the numbers in a metrics store; raised when their computation changes, so that stores are rebuilt."""

READ = ("attention", "values")
"""The arrays of the tensor store that metrics are computed from and that may have been dropped."""

CUDA_WORKERS = 4
"""Largest number of blocks at once on a CUDA device, which computes one at a time while the others are read."""


def build_lazy_metrics(
    tensors: "SequenceStore",
    analysis: AnalysisSettings,
    sequence: int,
    query: int,
    size: "LayerSize",
    device: str | None = None,
) -> dict[str, "da.Array"]:
    """All arrays of a metrics store except its ledger, of one query of one sequence, as lazy arrays; nothing is read.

    The axes are those of the store, sequence and query of length 1, N up to the position of this query, and of layers
    and heads those of one size. The graph has only this query: Dask traverses a graph as a whole for every result, so
    with a graph of the whole study the time would grow with the square of the study's size.

    Parameters
    ----------
    sequence, query
        Indices along these axes.
    size
        Size of the layers to measure.
    device
        Where blocks are computed: None for the CPU, or a CUDA device.
    """
    from dask.base import optimize

    from geometry.lazy.selection import build_scale_free_bounds, build_selection_arrays, build_similarities, value_norms

    one, at, layers = slice(sequence, sequence + 1), slice(query, query + 1), _index_layers(tensors.groups()[size])
    attention, values, first_key, learned_sink = optimize(  # drops the chunks of other queries
        tensors.open_lazy("attention")[one, at, layers, : size.heads],
        tensors.open_lazy("values")[one, layers, : size.kv_heads, :, : size.head_dim],
        tensors.open_lazy("first_key")[one, at, layers],
        tensors.open_lazy("learned_sink")[one, at, layers, : size.heads],
    )
    queries = read_query_positions(tensors)[at]
    arrays = build_selection_arrays(
        attention, values, first_key, queries, kappas=analysis.kappas, scale=analysis.scale, device=device
    )
    norms = value_norms(values)
    lower = build_scale_free_bounds(attention, norms, first_key, queries, head_dim=size.head_dim)
    return arrays | lower | build_similarities(values) | {"value_norm": norms, "learned_sink": learned_sink}


def _index_layers(layers: Sequence[int]) -> slice | list[int]:
    """An index of ascending layers: if they are evenly spaced a slice, which Dask takes without copies, else a list."""
    steps = {after - before for before, after in pairwise(layers)}
    return slice(layers[0], layers[-1] + 1, *steps) if len(steps) < 2 else list(layers)


def make_metrics(work: Work) -> Made:
    """Compute the missing metrics of a study from its tensor store, sequence by sequence.

    On threads, layers of one query run in parallel, one BLAS thread each; at most one block of
    ``geometry.lazy.selection.estimate_block_bytes`` per core and the results of one sequence are in memory. If the
    tensors were computed on a CUDA device and one is available, the metrics are too, with at most ``CUDA_WORKERS``
    blocks in memory and on the device. On a cluster sequences run in parallel, each on the CPU of a worker
    (``estimate_sequence_memory``).

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
    with hold_lock(home.lock(name), f"study '{name}'", wait=0):
        tensors = SequenceStore.open(home.tensors(name), TENSORS).require_complete()
        home.discard_replaced(name)
        device = find_cuda_device(tensors.provenance) if scheduler == "threads" else None
        if not home.metrics(name).exists():
            check_space(Extent(home, name, study, tensors.sizes, missing=0), work.assets)
        made_of = _MetricsInputs(name, tensors, study.analysis, device)
        standing = None if work.force else _find_usable_store(home.metrics(name), made_of)
        is_whole = standing is not None and not standing.find_missing()
        with use_scheduler("threads" if is_whole else scheduler) as client:
            if client is not None:
                await_idle(client, home.metrics(name))  # so that no worker of a killed run writes to the new one
            metrics = _prepare_metrics_store(home.metrics(name), made_of, force=work.force)
            missing = metrics.find_missing()
            if missing and client is None:
                threads = CUDA_WORKERS if device else os.cpu_count() or 1
                what = f"Measuring one sequence of '{name}' in {threads} threads"
                needed = estimate_sequence_memory(tensors, study.analysis, threads)
                check_memory(what, needed, "use a machine with more memory")
            if client is None:
                _measure_locally(tensors, metrics, study.analysis, missing, device)
                violations = _count_identity_violations(metrics)
            else:
                violations = _measure_on_cluster(client, tensors, metrics, study.analysis, missing)
    selections = count_selection_rows(metrics)
    seconds = time.monotonic() - started
    logger.info("%s: %s selections of %d sequences measured, %.1f s", name, f"{selections:,}", len(missing), seconds)
    return Made(
        {
            "path": home.metrics(name),
            "dagster/row_count": selections,
            "sequences measured in this run": len(missing),
            "bytes": metrics.measure_size(),
            "seconds": seconds,
        },
        (Checked("identities_hold", violations == 0, {"selections": selections, "violations": violations}),),
    )


def _measure_locally(
    tensors: "SequenceStore",
    metrics: "SequenceStore",
    analysis: AnalysisSettings,
    missing: Sequence[int],
    device: str | None,
) -> None:
    """Measure sequences one after the other, on all cores or on a device."""
    import dask

    cores = os.cpu_count() or 1
    with (
        one_blas_thread,
        dask.config.set(num_workers=min(cores, CUDA_WORKERS) if device else cores),
    ):
        for sequence in _show_progress(missing, len(missing)):
            with translate_device_errors(metrics.provenance["study"], device):
                metrics.write(sequence, _measure_sequence(tensors, metrics.sizes, analysis, sequence, device=device))


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
    tensors: "SequenceStore",
    metrics: "SequenceStore",
    analysis: AnalysisSettings,
    missing: Sequence[int],
) -> int:
    """Measure sequences on the workers of a cluster, one per thread; return the violations in all sequences."""
    every = range(metrics.sizes["sequence"])
    with place_probes(client, (tensors.path, metrics.path)) as probes:
        stores = _Stores(tensors.path, metrics.path, compute_provenance_digest(metrics), analysis, probes)
        with closing(
            compute_each(client, _measure_one, missing, what="sequence", of=metrics.path, stores=stores)
        ) as measured:
            for _ in _show_progress(measured, len(missing)):
                pass
        with closing(
            compute_each(client, _count_sequence_violations, every, what="sequence", of=metrics.path, stores=stores)
        ) as counted:
            return sum(found for _, found in counted)


def _show_progress(given: Iterable[T], total: int) -> Iterator[T]:
    """Iterate over sequences, with a progress bar on a terminal."""
    from tqdm import tqdm

    yield from tqdm(given, total=total, desc="metrics", unit="sequence", disable=None)


def _measure_one(sequence: int, *, stores: _Stores) -> None:
    """The task of a worker: measure one sequence and write it.

    If this worker was taken for dead, its run may have ended, or its store may have been replaced since; then nothing
    is written.
    """
    tensors, metrics = _open_stores(stores)
    found = _measure_sequence(
        tensors, metrics.sizes, stores.analysis, sequence, scheduler="synchronous", go_on=_check_wanted
    )
    _check_not_replaced(stores)
    metrics.write(sequence, found, before_ledger=partial(_check_not_replaced, stores))


def _check_wanted() -> None:
    """Raise UserError, which is not shown to users, in a task that is no longer wanted."""
    if not is_wanted():
        msg = "The run that started this task of a Dask worker has ended"
        raise UserError(msg)


def _count_sequence_violations(sequence: int, *, stores: _Stores) -> int:
    """The task of a worker: ``_count_identity_violations`` of one sequence."""
    return _count_identity_violations(_open_stores(stores)[1], slice(sequence, sequence + 1), "synchronous")


@lru_cache(maxsize=4)
def _open_stores(stores: _Stores) -> "tuple[SequenceStore, SequenceStore]":
    """Open the stores of a task once per process; raise UserError if the worker does not share them with the client."""
    check_probes(stores.probes)
    return SequenceStore.open(stores.tensors, TENSORS), SequenceStore.open(stores.metrics, SELECTION)


def _check_not_replaced(stores: _Stores) -> None:
    """Raise UserError if the metrics store that the task was made for has been replaced."""
    if compute_provenance_digest(SequenceStore.open(stores.metrics, ())) != stores.made_of:
        msg = f"The metrics {stores.metrics} were replaced while a Dask worker computed them; run again"
        raise UserError(msg)


def compute_provenance_digest(store: "SequenceStore") -> str:
    """SHA-256 of the provenance of a store."""
    return hashlib.sha256(json.dumps(store.provenance, sort_keys=True).encode()).hexdigest()


def estimate_sequence_memory(tensors: "SequenceStore", analysis: AnalysisSettings, threads: int = 1) -> int:
    """Upper bound of the memory that measuring one sequence takes, in bytes; a worker uses one thread.

    It is the sum of the results of the sequence as they are stored, those of one query three times (as computed, by
    layer and joined), one block for each thread, and the chunks that are being written to the store.
    """
    from geometry.lazy.selection import estimate_block_bytes, estimate_similarity_bytes

    sizes = _compute_metrics_sizes(tensors, analysis)
    results = estimate_sequence_bytes(SELECTION, sizes)
    of_query = estimate_sequence_bytes(SELECTION, sizes | {"query": 1})
    blocks = (
        max(
            estimate_block_bytes(tensors.sizes, size.heads, size.kv_heads, len(analysis.kappas)),
            estimate_similarity_bytes(tensors.sizes, size.kv_heads),
        )
        for size in tensors.groups()
    )
    writing = max(2 * (shards.WORKERS + 2) * min(CHUNK_BYTES, results), shards.REUSED)
    return results + 3 * of_query + threads * max(blocks) + writing


def _measure_sequence(
    tensors: "SequenceStore",
    sizes: Mapping[str, int],
    analysis: AnalysisSettings,
    sequence: int,
    *,
    device: str | None = None,
    scheduler: str | None = None,
    go_on: Callable[[], None] = lambda: None,
) -> dict[str, "NDArray[Any]"]:
    """The arrays of one sequence, computed one query after the other: together, they would read values ahead.

    ``sizes`` are those of the axes of the metrics store; elements without a layer or query keep the fill value.
    ``scheduler`` is one of Dask's for a single process, or None for the configured one. ``go_on`` is called after each
    query; an error that it raises ends the computation.
    """
    from dask.base import compute

    specs = [spec for spec in SELECTION if spec.name != "finished"]
    found = {spec.name: np.full(spec.shape(sizes)[1:], spec.fill, spec.dtype) for spec in specs}
    by_query = [spec.name for spec in specs if "query" in spec.dims]
    for size, numbers in tensors.groups().items():
        layers = _index_layers(numbers)
        for query in range(sizes["query"]):
            arrays = build_lazy_metrics(tensors, analysis, sequence, query, size, device)
            for name, array in compute({name: arrays[name][0, 0] for name in by_query}, scheduler=scheduler)[0].items():
                found[name][(query, layers, *map(slice, array.shape[1:]))] = array
            go_on()
        others = {name: array[0] for name, array in arrays.items() if name not in by_query}
        for name, array in compute(others, scheduler=scheduler)[0].items():
            found[name][(layers, *map(slice, array.shape[1:]))] = array
    return found


def find_cuda_device(provenance: Mapping[str, Any]) -> str | None:
    """The CUDA device for metrics, if the tensors were computed on one and one is available: the study's if possible.

    None, with a warning, if Triton is missing, in which the CUDA kernels are written.
    """
    if not provenance["versions"]["device"].startswith("cuda"):
        return None
    import torch

    present = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if present and find_spec("triton") is None:
        logger.warning("Triton is not installed, so the CPU computes the metrics; install triton to use the GPU")
        return None
    asked = str(provenance["settings"]["device"])
    return asked if asked in present else "cuda" if present else None


@contextmanager
def translate_device_errors(name: str, device: str | None) -> Iterator[None]:
    """Raise UserError, with a remedy, if a CUDA device has too little memory, is lost or cannot be used."""
    try:
        yield
    except RuntimeError as error:  # torch.cuda.OutOfMemoryError is one
        if device is None:
            raise
        why = " ".join(str(error).partition(". ")[0].split())
        msg = (
            f"The metrics of study '{name}' could not be computed on the device '{device}' ({why}); "
            f"CUDA_VISIBLE_DEVICES= attention-geometry run {name} computes them on the CPU"
        )
        raise UserError(msg) from error


def open_metrics(home: Home, name: str) -> "SequenceStore":
    """The metrics store of a study.

    Raises
    ------
    UserError
        If there is none, or it is not one of this version; metrics are derived, so running the study rebuilds them.
    """
    path = home.metrics(name)
    msg = f"The metrics {path} are damaged or of an earlier version; run: attention-geometry run {name}"
    try:
        store = SequenceStore.open(path, SELECTION)
    except UserError as error:
        raise UserError(msg if path.exists() else str(error)) from error
    if store.provenance.get("metrics_version") != METRICS_VERSION:
        raise UserError(msg)
    return store


def build_metrics_provenance(name: str, tensors: "SequenceStore", analysis: AnalysisSettings) -> dict[str, Any]:
    """The provenance of the metrics of these tensors and settings, except the versions of libraries and the device."""
    return {
        "study": name,
        "metrics_version": METRICS_VERSION,
        "analysis": analysis.select_measured(),
        "tensors": tensors.provenance,
    }


@dataclass(frozen=True)
class _MetricsInputs:
    """What a metrics store is made of, and the device that computes it."""

    study: str
    tensors: "SequenceStore"
    analysis: AnalysisSettings
    device: str | None

    @property
    def sizes(self) -> dict[str, int]:
        return _compute_metrics_sizes(self.tensors, self.analysis)

    @property
    def provenance(self) -> dict[str, Any]:
        return build_metrics_provenance(self.study, self.tensors, self.analysis)

    @property
    def versions(self) -> dict[str, str]:
        return _find_versions(self.device or "cpu")


def _prepare_metrics_store(path: Place, made_of: _MetricsInputs, *, force: bool = False) -> "SequenceStore":
    """The metrics store of these tensors and settings; one of others, or of an older version, is removed.

    With ``force`` any existing store is removed. Nothing is removed if the tensors have been dropped, since the metrics
    could not be computed again.
    """
    if force or _find_usable_store(path, made_of) is None:
        for name in READ:
            made_of.tensors.array(name)
        path.remove()
    provenance = made_of.provenance | {"versions": made_of.versions}
    return SequenceStore.resume(path, SELECTION, made_of.sizes, provenance, made_of.tensors.layers)


def _find_usable_store(path: Place, made_of: _MetricsInputs) -> "SequenceStore | None":
    """The metrics store at ``path`` if it is of these tensors and settings, complete or to be continued; else None.

    Raises
    ------
    UserError
        If it can be continued only on another device; or if it is in an object store and cannot be opened, whether it
        is damaged or temporarily out of reach: there, only a store known to be of other inputs is rebuilt.
    """
    if not path.exists():
        return None
    try:
        recorded = SequenceStore.open(path, ())  # whatever arrays it has: an earlier version may have had others
        refuse_newer(f"The store {path}", recorded.provenance.get("metrics_version"), METRICS_VERSION, made_of.study)
        if not _is_of(recorded, made_of):
            return None
        store = SequenceStore.open(path, SELECTION)
        missing = store.find_missing()
    except NewerError:
        raise
    except UserError as error:
        if path.is_remote:
            msg = (
                f"The metrics {path} cannot be opened ({error}); "
                "if the object store works, delete them and run again, which computes them again"
            )
            raise UserError(msg) from error
        return None
    versions = store.provenance["versions"]
    if missing and versions["device"] != made_of.versions["device"]:
        msg = (
            f"The metrics {path} were started on the device '{versions['device']}' and would be continued on "
            f"'{made_of.versions['device']}'; run again on the former, or delete them to start again"
        )
        raise UserError(msg)
    return None if missing and versions != made_of.versions else store


def _is_of(store: "SequenceStore", made_of: _MetricsInputs) -> bool:
    """Whether a store is of these tensors and settings, whatever the versions of libraries."""
    recorded = {part: value for part, value in store.provenance.items() if part != "versions"}
    return (recorded, store.sizes, store.layers) == (made_of.provenance, made_of.sizes, made_of.tensors.layers)


def _compute_metrics_sizes(tensors: "SequenceStore", analysis: AnalysisSettings) -> dict[str, int]:
    """Sizes of the axes of the metrics store of these tensors."""
    sizes = {key: size for key, size in tensors.sizes.items() if key != "head_dim"}
    return sizes | {"kappa": len(analysis.kappas), "n": read_query_positions(tensors)[-1]}


def _find_versions(device: str) -> dict[str, str]:
    """The versions of the libraries that compute metrics, and the device."""
    return {library: version(library) for library in ("dask", "numba", "numpy", "torch")} | {"device": device}


def _count_identity_violations(
    metrics: "SequenceStore", sequences: slice = slice(None), scheduler: str | None = None
) -> int:
    """How many selections of some sequences break 0 ≤ K_in ≤ N, 0 ≤ K_out ≤ n − N or K_in = 1 at N = 1 (A.1)."""
    import dask.array as da

    n = da.arange(1, metrics.sizes["n"] + 1, chunks=-1)
    found = 0
    for size, numbers in metrics.groups().items():
        layers = _index_layers(numbers)
        k_in, k_out = (metrics.open_lazy(name)[sequences, :, layers, : size.heads] for name in ("k_in", "k_out"))
        n_keys = metrics.open_lazy("n_keys")[sequences, :, layers, None, None]
        broken = (k_in < 0) | (k_in > n) | (k_out < 0) | (k_out > n_keys - n) | ((n == 1) & (k_in != 1))
        found += int((broken & (n < n_keys)).sum().compute(scheduler=scheduler))
    return found


def _read_recorded(snapshot: Snapshot) -> MadeOf | str:
    metrics = snapshot.metrics
    if metrics is None:
        return _read_other_version(snapshot.home.metrics(snapshot.name))
    missing, total = len(metrics.find_missing()), metrics.sizes["sequence"]
    lacking = f"{missing} of {total} sequences missing" if missing else None
    return _parse_provenance(metrics.provenance, lacking)


def _read_other_version(path: Place) -> MadeOf | str:
    """What a store was made of that cannot be opened as one of this version, since it may have other arrays."""
    if not path.exists():
        return MISSING
    try:
        found = _parse_provenance(SequenceStore.open(path, ()).provenance)
    except NewerError:
        raise
    except UserError:
        return UNREADABLE
    return UNREADABLE if found.version == METRICS_VERSION else found


def _build_expected(snapshot: Snapshot) -> MadeOf | None:
    if snapshot.tensors is None:
        return None
    return _parse_provenance(build_metrics_provenance(snapshot.name, snapshot.tensors, snapshot.study.analysis))


def _parse_provenance(provenance: Mapping[str, Any], lacking: str | None = None) -> MadeOf:
    return MadeOf(
        provenance.get("metrics_version"),
        {"analysis": provenance.get("analysis", {})},
        {"tensors": (provenance.get("study"), provenance.get("tensors"))},
        lacking,
    )


def _estimate_bytes(extent: Extent) -> int:
    """Uncompressed bytes of the sequences that are still to be measured."""
    study = extent.study
    sizes = {**extent.sizes, "kappa": len(study.analysis.kappas), "n": max(study.query_positions)}
    begun = extent.home.metrics(extent.name).exists()
    return estimate_sequence_bytes(SELECTION, sizes) * (extent.missing if begun else study.sequences)


SELECTION_METRICS = Asset(
    name="selection_metrics",
    about="How well a ball around s_N separates the N selected keys from the others, for every head and every N.",
    parents=("tensors",),
    kinds=("dask", "zarr"),
    version=lambda: str(METRICS_VERSION),
    make=make_metrics,
    expected=_build_expected,
    recorded=_read_recorded,
    places=wrap_place(Home.metrics),
    settings=MEASURED,
    reads=READ,
    space=_estimate_bytes,
    checks=lambda: (Check("identities_hold", "0 ≤ K_in ≤ N, 0 ≤ K_out ≤ n − N, and K_in = 1 at N = 1, on every row."),),
)
