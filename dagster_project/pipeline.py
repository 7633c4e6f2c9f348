"""The steps of a study, each one function from files to files; the bodies of the assets.

Holds the wiring of extraction, storage and geometry. What does not belong here: Dagster (``defs``), the warehouse's
tables (``dagster_project.landing``), pages (``dagster_project.reporting``), and anything a single one of those packages
can do alone. Heavy libraries are imported inside the steps that need them.
"""

import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dagster_project.home import Home
from dagster_project.studies import AnalysisSettings, Study
from storage.errors import UserError
from storage.locks import exclusive

if TYPE_CHECKING:
    import dask.array as da
    from numpy.typing import NDArray

    from dagster_project.summaries import Step
    from dagster_project.summaries.sources import Sources
    from extract.extraction import ExtractionReport
    from storage.arrays import ArraySpec
    from storage.sequences import SequenceStore

logger = logging.getLogger(__name__)

ROW_SUM_TOLERANCE = 2.0**-24
"""How far a row of float32 weights may be from summing to 1, for each of its keys: one rounding."""

METRICS_VERSION = 4
"""Version of the numbers in a metrics store; raised when their computation changes, so that stores are made anew."""

CUDA_WORKERS = 4
"""Most blocks in work at once where a CUDA device computes them: it takes one after the other, the rest are read."""


@dataclass(frozen=True)
class Measured:
    """What the metrics step did."""

    path: Path
    sequences: int
    """Sequences measured this time; the others were there already."""
    selections: int
    """Rows the store is good for: one per sequence, query, layer, head and N."""
    violations: int
    """Selections that break an identity of the contract; 0 when all is well."""
    bytes: int
    seconds: float


def extract_tensors(home: Home, name: str, study: Study) -> "ExtractionReport":
    """Extract the tensors of a study, or what is missing of them."""
    from extract.extraction import extract

    drawn = "drawing heads from Assumptions 1-3"
    reading = f"reading {study.corpus.id} with {study.model.id}"
    logger.info("%s: %s", name, drawn if study.synthetic else reading)
    with exclusive(home.lock(name), f"study '{name}'", wait=0):
        report = extract(study.extraction(), study=name, path=home.tensors(name))
    new = f"{report.written} of {report.sequences} sequences extracted" if report.written else "nothing to extract"
    skipped = f", {report.documents_skipped} documents too short" if report.documents_skipped else ""
    logger.info("%s: %s%s, %.1f MB, %.1f s", name, new, skipped, report.bytes / 1e6, report.seconds)
    return report


def missing_tensors(home: Home, name: str) -> list[int]:
    """The sequences that the ledger of a tensor store does not have."""
    from storage.arrays import TENSORS
    from storage.sequences import SequenceStore

    return SequenceStore.open(home.tensors(name), TENSORS).missing()


def lazy_metrics(
    tensors: "SequenceStore", analysis: AnalysisSettings, sequence: int, query: int, device: str | None = None
) -> dict[str, "da.Array"]:
    """All that a metrics store holds but its ledger, of one query of one sequence, as lazy arrays; nothing is read.

    The axes are those of the store, sequence and query of length 1, N up to the position of this query. Only this query
    is in the graph, which Dask goes through as a whole: built over a study, it would take time in the square of it.

    Parameters
    ----------
    sequence, query
        Indices along these axes.
    device
        Where blocks are computed: None for the CPU, or a CUDA device.
    """
    from dask.base import optimize

    from dagster_project.summaries.sources import query_positions
    from geometry.lazy import scale_free_bounds, selection_arrays, similarities, value_norms

    one, at = slice(sequence, sequence + 1), slice(query, query + 1)
    attention, first_key = (tensors.lazy(name)[one, at] for name in ("attention", "first_key"))
    attention, values, first_key = optimize(attention, tensors.lazy("values")[one], first_key)  # without other chunks
    queries = query_positions(tensors)[at]
    arrays = selection_arrays(
        attention, values, first_key, queries, kappas=analysis.kappas, scale=analysis.scale, device=device
    )
    norms = value_norms(values)
    lower = scale_free_bounds(attention, norms, first_key, queries, head_dim=tensors.sizes["head_dim"])
    return arrays | lower | similarities(values) | {"value_norm": norms}


def measure(home: Home, name: str, study: Study) -> Measured:
    """Compute the metrics of a study from its tensor store, sequence by sequence, or what is missing of them.

    Layers of one query run side by side, one BLAS thread each; at most one block of ``geometry.lazy.block_bytes`` per
    core and the results of one sequence are in memory. Where the tensors were computed on a CUDA device and there is
    one now, so are the metrics, with at most ``CUDA_WORKERS`` blocks in memory and on the device.
    """
    import dask
    from threadpoolctl import threadpool_limits
    from tqdm import tqdm

    from storage.arrays import TENSORS
    from storage.rows import selection_row_count
    from storage.sequences import SequenceStore

    started = time.monotonic()
    with exclusive(home.lock(name), f"study '{name}'", wait=0):
        tensors = SequenceStore.open(home.tensors(name), TENSORS).whole()
        device = _cuda_device(tensors.provenance)
        metrics = _metrics_store(home.metrics(name), name, tensors, study.analysis, device)
        missing = metrics.missing()
        cores = os.cpu_count() or 1
        with (
            threadpool_limits(limits=1, user_api="blas"),
            dask.config.set(scheduler="threads", num_workers=min(cores, CUDA_WORKERS) if device else cores),
        ):
            for sequence in tqdm(missing, desc="metrics", unit="sequence", disable=None):
                with _device_errors(name, device):
                    metrics.write(sequence, _measured(tensors, metrics.sizes, study.analysis, sequence, device))
            violations = _identity_violations(metrics)
    selections = selection_row_count(metrics)
    seconds = time.monotonic() - started
    logger.info("%s: %s selections of %d sequences measured, %.1f s", name, f"{selections:,}", len(missing), seconds)
    return Measured(metrics.path, len(missing), selections, violations, metrics.bytes_on_disk(), seconds)


def _measured(
    tensors: "SequenceStore", sizes: Mapping[str, int], analysis: AnalysisSettings, sequence: int, device: str | None
) -> dict[str, "NDArray[Any]"]:
    """The arrays of one sequence, computed one query after the other: together, they would read values ahead.

    ``sizes`` are those of the axes of the metrics store.
    """
    from dask.base import compute

    from storage.arrays import SELECTION

    by_query = [spec for spec in SELECTION if "query" in spec.dims]
    found = {spec.name: np.full(spec.shape(sizes)[1:], spec.fill, spec.dtype) for spec in by_query}
    for query in range(sizes["query"]):
        arrays = lazy_metrics(tensors, analysis, sequence, query, device)
        for name, array in compute({name: arrays[name][0, 0] for name in found})[0].items():
            found[name][query, ..., : array.shape[-1]] = array
    others: dict[str, NDArray[Any]]
    others = compute({name: array[0] for name, array in arrays.items() if name not in found})[0]
    return found | others


def _cuda_device(provenance: Mapping[str, Any]) -> str | None:
    """The CUDA device on which these tensors were computed, if there is one now; which one, if the study says so.

    None, with a warning, if Triton is missing, in which the kernels for it are written.
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
def _device_errors(name: str, device: str | None) -> Iterator[None]:
    """Tell the user what to do where a CUDA device has too little memory, is gone or cannot be used."""
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
        If there is none, or it is not one of this version; metrics are derived, so running the study mends it.
    """
    from storage.arrays import SELECTION
    from storage.sequences import SequenceStore

    path = home.metrics(name)
    msg = f"The metrics {path} are damaged or of an earlier version; run: attention-geometry run {name}"
    try:
        store = SequenceStore.open(path, SELECTION)
    except UserError as error:
        raise UserError(msg if path.exists() else str(error)) from error
    if store.provenance.get("metrics_version") != METRICS_VERSION:
        raise UserError(msg)
    return store


def _metrics_provenance(name: str, tensors: "SequenceStore", analysis: AnalysisSettings) -> dict[str, Any]:
    """What makes the metrics of these tensors and settings, but the versions of libraries and the device."""
    return {
        "study": name,
        "metrics_version": METRICS_VERSION,
        "analysis": analysis.measured(),
        "tensors": tensors.provenance,
    }


def _metrics_store(
    path: Path, name: str, tensors: "SequenceStore", analysis: AnalysisSettings, device: str | None
) -> "SequenceStore":
    """The metrics store of these tensors and settings; one of others, or of an older version, is derived and goes."""
    from dagster_project.summaries.sources import query_positions
    from storage.arrays import SELECTION
    from storage.sequences import SequenceStore

    sizes = {key: size for key, size in tensors.sizes.items() if key != "head_dim"}
    sizes |= {"kappa": len(analysis.kappas), "n": query_positions(tensors)[-1]}
    versions = {library: version(library) for library in ("dask", "numba", "numpy", "torch")}
    provenance = _metrics_provenance(name, tensors, analysis) | {"versions": versions | {"device": device or "cpu"}}
    try:
        return SequenceStore.resume(path, SELECTION, sizes, provenance)
    except UserError:
        shutil.rmtree(path)
        return SequenceStore.resume(path, SELECTION, sizes, provenance)


def _identity_violations(metrics: "SequenceStore") -> int:
    """How many selections break 0 ≤ K_in ≤ N, 0 ≤ K_out ≤ n − N or K_in = 1 at N = 1 (A.1)."""
    import dask.array as da

    k_in, k_out = metrics.lazy("k_in"), metrics.lazy("k_out")
    n = da.arange(1, metrics.sizes["n"] + 1, chunks=-1)
    n_keys = metrics.lazy("n_keys")[..., None, None]
    broken = (k_in < 0) | (k_in > n) | (k_out < 0) | (k_out > n_keys - n) | ((n == 1) & (k_in != 1))
    return int((broken & (n < n_keys)).sum().compute())


@dataclass(frozen=True)
class Summarised:
    """What a step between metrics and warehouse did."""

    path: Path
    """Folder of its tables."""
    rows: dict[str, int]
    """Rows of each."""
    seconds: float


def summarise(home: Home, name: str, study: Study, step: "Step") -> Summarised:
    """Make the tables of one step, unless they are there, made from the same metrics and settings."""
    from storage.aside import sweep
    from storage.summaries import rows_of, write_summary

    started = time.monotonic()
    with exclusive(home.lock(name), f"study '{name}'", wait=0):
        sources, paths = open_sources(home, name, study), summary_paths(home, name, step)
        for place in (home.summaries(name), *paths.values()):
            sweep(place)
        if not _is_made(sources, step):
            check_made(sources, step.after)
            wanted = step.provenance(study.analysis, sources.metrics.provenance)
            libraries = {library: version(library) for library in ("dask", "numba", "numpy", "scipy")}
            for table, batches in step.make(sources).items():
                write_summary(paths[table], batches, wanted, libraries)
        rows = {table: rows_of(path) for table, path in paths.items()}
    seconds = time.monotonic() - started
    logger.info("%s: %s, %s rows, %.1f s", name, step.name.replace("_", " "), f"{sum(rows.values()):,}", seconds)
    return Summarised(home.summaries(name), rows, seconds)


def summary_paths(home: Home, name: str, step: "Step") -> dict[str, Path]:
    """The file of each table of a step."""
    return {table: home.summaries(name) / f"{table}.parquet" for table in step.tables}


def _is_made(sources: "Sources", step: "Step") -> bool:
    """Whether all tables of a step are there, made from these metrics and settings."""
    from storage.summaries import made_from

    wanted = step.provenance(sources.study.analysis, sources.metrics.provenance)
    return all(made_from(sources.summaries / f"{table}.parquet") == wanted for table in step.tables)


def check_made(sources: "Sources", steps: Iterable[str]) -> None:
    """Refuse to go on from tables that are missing or stale.

    Raises
    ------
    UserError
        If the tables of one of these steps are not made from these metrics and settings.
    """
    from dagster_project.summaries import STEPS

    for name in steps:
        if not _is_made(sources, STEPS[name]):
            msg = (
                f"The tables of '{name}' in {sources.summaries} are missing, damaged or made from other metrics; "
                f"run: attention-geometry run {sources.name}"
            )
            raise UserError(msg)


def open_sources(home: Home, name: str, study: Study) -> "Sources":
    """What steps after the metrics read: whole stores that belong together and to the study's settings.

    Raises
    ------
    UserError
        If they do not.
    """
    from dagster_project.summaries.sources import Sources
    from storage.arrays import TENSORS
    from storage.sequences import SequenceStore

    tensors = SequenceStore.open(home.tensors(name), TENSORS).whole()
    metrics = open_metrics(home, name).whole()
    wanted = _metrics_provenance(name, tensors, study.analysis)
    if any(metrics.provenance.get(part) != wanted[part] for part in wanted):
        msg = (
            f"The metrics of study '{name}' are those of other settings or tensors; run: attention-geometry run {name}"
        )
        raise UserError(msg)
    return Sources(name, tensors, metrics, home.summaries(name), study)


def judge_claims(home: Home, name: str) -> list[dict[str, Any]]:
    """The rows of the view ``claims`` for a landed study: what the paper claims, and whether the study supports it.

    Raises
    ------
    UserError
        If the study is not landed.
    """
    from reports.queries import ask
    from storage.warehouse import connect

    with closing(connect(home.warehouse)) as connection:
        found = ask(connection, "claims", study=name).rows()
    if not found:
        msg = f"The warehouse holds nothing of the study '{name}'; run it first: attention-geometry run {name}"
        raise UserError(msg)
    return found


def states(home: Home, studies: Mapping[str, Study]) -> dict[str, str]:
    """In a few words, how far each study has come."""
    from storage.arrays import SELECTION, TENSORS
    from storage.sequences import SequenceStore
    from storage.warehouse import database

    def progress(path: Path, specs: "Sequence[ArraySpec]") -> str:
        try:
            store = SequenceStore.open(path, specs)
        except UserError:
            return "cannot be read; see doctor"
        total = store.sizes["sequence"]
        return f"{total - len(store.missing())} of {total} sequences"

    def state(name: str) -> str:
        if database(home.warehouse, name).exists():
            return "reported" if home.report(name).exists() else "landed"
        if home.metrics(name).exists():
            return f"measured: {progress(home.metrics(name), SELECTION)}"
        return f"extracted: {progress(home.tensors(name), TENSORS)}" if home.tensors(name).exists() else "not run"

    return {name: state(name) for name in studies}
