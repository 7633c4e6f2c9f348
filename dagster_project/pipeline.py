"""The steps of a study, each one function from files to files; the bodies of the assets.

Holds the wiring of extraction, storage and geometry. What does not belong here: Dagster (``defs``), the warehouse's
tables (``dagster_project.landing``), pages (``dagster_project.reporting``), and anything a single one of those packages
can do alone. Heavy libraries are imported inside the steps that need them.
"""

import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dagster_project.home import Home
from dagster_project.studies import AnalysisSettings, Study
from storage.aside import discard
from storage.errors import UserError
from storage.locks import exclusive

if TYPE_CHECKING:
    import dask.array as da
    from numpy.typing import NDArray

    from dagster_project.summaries import Step
    from dagster_project.summaries.sources import Sources
    from extract.extraction import ExtractionReport
    from extract.settings import Shard
    from storage.arrays import ArraySpec, LayerSize
    from storage.places import Place
    from storage.sequences import SequenceStore

logger = logging.getLogger(__name__)

ROW_SUM_TOLERANCE = 2.0**-24
"""How far a row of float32 weights may be from summing to 1, for each of its keys: one rounding."""

HALF_ROW_SUM_TOLERANCE = 0.02
"""How far a row may be whose weights a model gave in half precision, as those do that are read in two passes."""

METRICS_VERSION = 5
"""Version of the numbers in a metrics store; raised when their computation changes, so that stores are made anew."""

LARGE = ("attention", "values")
"""The arrays of a tensor store that are dropped on request: all but these is small."""

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


def extract_tensors(home: Home, name: str, study: Study, shard: "Shard | None" = None) -> "ExtractionReport":
    """Extract the tensors of a study, or of one shard of it, or what is missing of them.

    Raises
    ------
    UserError
        If another process works on them, the disk has less space than they need, or as ``extract.extraction.extract``.
    """
    from dagster_project.space import check_space
    from extract.extraction import extract

    drawn = "drawing heads from Assumptions 1-3"
    reading = f"reading {study.corpus.id} with {study.model.id}"
    logger.info("%s%s: %s", name, f", shard {shard}" if shard else "", drawn if study.synthetic else reading)
    with home.claimed(name, shard):
        report = extract(
            study.extraction(),
            study=name,
            path=home.tensors(name),
            shard=shard,
            before=lambda sizes, _, missing: check_space(home, name, study, sizes, missing),
        )
    new = f"{report.written} of {report.sequences} sequences extracted" if report.written else "nothing to extract"
    skipped = f", {report.documents_skipped} documents too short" if report.documents_skipped else ""
    logger.info("%s: %s%s, %.1f MB, %.1f s", name, new, skipped, report.bytes / 1e6, report.seconds)
    return report


def missing_tensors(home: Home, name: str) -> list[int]:
    """The sequences that the ledger of a tensor store does not have."""
    from storage.arrays import TENSORS
    from storage.sequences import SequenceStore

    return SequenceStore.open(home.tensors(name), TENSORS).missing()


def row_sum_tolerance(home: Home, name: str) -> float:
    """How far the weights of a query may be from summing to 1, in the tensor store of a study."""
    from storage.arrays import TENSORS
    from storage.sequences import SequenceStore

    store = SequenceStore.open(home.tensors(name), TENSORS)
    made_of = store.provenance
    half = made_of["inputs"]["model"].get("attention") == "two-pass" and made_of["settings"]["dtype"] != "float32"
    return HALF_ROW_SUM_TOLERANCE if half else ROW_SUM_TOLERANCE * store.sizes["key"]


def finalise_tensors(home: Home, name: str) -> int:
    """How many sequences a study has whose shards were extracted, if none is missing; what killed ones left goes.

    Raises
    ------
    UserError
        If a process is still working on it, or sequences are missing; the message names them.
    """
    from storage.arrays import TENSORS
    from storage.sequences import SequenceStore, sweep_store

    with home.claimed(name):
        store = SequenceStore.open(home.tensors(name), TENSORS)
        sweep_store(store.path)
        missing, total = store.missing(), store.sizes["sequence"]
    if missing:
        msg = (
            f"Study '{name}' lacks {len(missing)} of {total} sequences: {_ranges(missing)}; extract their shards again "
            f"(attention-geometry extract {name} --shard K/N), or here all of them (attention-geometry extract {name})"
        )
        raise UserError(msg)
    return total


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending whole numbers in words: 0-4, 7, 9-12."""
    ends = [at for at, (one, other) in enumerate(pairwise(numbers), start=1) if other > one + 1]
    parts = [numbers[start:stop] for start, stop in pairwise([0, *ends, len(numbers)])]
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def drop_tensors(home: Home, name: str, study: Study) -> int:
    """Delete weights and value states of a study whose metrics and tables have landed; returns the bytes freed.

    What reads as small remains: tokens, positions, the ledger and what the tensors were made of.

    Raises
    ------
    UserError
        If another process works on the study, or what they are good for has not landed.
    """
    from storage.places import bytes_on_disk
    from storage.sequences import sweep_store

    with home.claimed(name):
        sources = open_sources(home, name, study)
        if not _has_landed(home, sources):
            msg = (
                f"The tensors of study '{name}' have not landed, so dropping them would lose them; "
                f"run: attention-geometry run {name}"
            )
            raise UserError(msg)
        before = bytes_on_disk(sources.tensors.path)
        sources.tensors.drop(LARGE)
        sweep_store(sources.tensors.path)
        return before - bytes_on_disk(sources.tensors.path)


def _has_landed(home: Home, sources: "Sources") -> bool:
    """Whether the published database of a study was made from these tensors and metrics."""
    from storage.rows import provenance_of
    from storage.warehouse import connect, database

    if not database(home.warehouse, sources.name).exists():
        return False
    with closing(connect(home.warehouse)) as connection:
        found = connection.execute("SELECT provenance FROM studies WHERE study = ?", [sources.name]).fetchone()
    landed = json.loads(found[0]) if found else {}
    wanted = provenance_of(sources.tensors, sources.metrics, landed.get("summaries", {}))
    return bool(landed == json.loads(json.dumps(wanted)))


def lazy_metrics(
    tensors: "SequenceStore",
    analysis: AnalysisSettings,
    sequence: int,
    query: int,
    size: "LayerSize",
    device: str | None = None,
) -> dict[str, "da.Array"]:
    """All that a metrics store holds but its ledger, of one query of one sequence, as lazy arrays; nothing is read.

    The axes are those of the store, sequence and query of length 1, N up to the position of this query, and of layers
    and heads those of one size. Only this query is in the graph, which Dask goes through as a whole: built over a
    study, it would take time in the square of it.

    Parameters
    ----------
    sequence, query
        Indices along these axes.
    size
        Which layers: those of this size.
    device
        Where blocks are computed: None for the CPU, or a CUDA device.
    """
    from dask.base import optimize

    from dagster_project.summaries.sources import query_positions
    from geometry.lazy import scale_free_bounds, selection_arrays, similarities, value_norms

    one, at, layers = slice(sequence, sequence + 1), slice(query, query + 1), _taken(tensors.groups()[size])
    attention, values, first_key, learned_sink = optimize(  # without the chunks of others
        tensors.lazy("attention")[one, at, layers, : size.heads],
        tensors.lazy("values")[one, layers, : size.kv_heads, :, : size.head_dim],
        tensors.lazy("first_key")[one, at, layers],
        tensors.lazy("learned_sink")[one, at, layers, : size.heads],
    )
    queries = query_positions(tensors)[at]
    arrays = selection_arrays(
        attention, values, first_key, queries, kappas=analysis.kappas, scale=analysis.scale, device=device
    )
    norms = value_norms(values)
    lower = scale_free_bounds(attention, norms, first_key, queries, head_dim=size.head_dim)
    return arrays | lower | similarities(values) | {"value_norm": norms, "learned_sink": learned_sink}


def _taken(layers: Sequence[int]) -> slice | list[int]:
    """An index of layers, ascending, which is a slice, that Dask takes without copies, if they are evenly spaced."""
    steps = {after - before for before, after in pairwise(layers)}
    return slice(layers[0], layers[-1] + 1, *steps) if len(steps) < 2 else list(layers)


def measure(home: Home, name: str, study: Study) -> Measured:
    """Compute the metrics of a study from its tensor store, sequence by sequence, or what is missing of them.

    Layers of one query run side by side, one BLAS thread each; at most one block of ``geometry.lazy.block_bytes`` per
    core and the results of one sequence are in memory. Where the tensors were computed on a CUDA device and there is
    one now, so are the metrics, with at most ``CUDA_WORKERS`` blocks in memory and on the device.
    """
    import dask
    from threadpoolctl import threadpool_limits
    from tqdm import tqdm

    from dagster_project.space import check_space
    from storage.arrays import TENSORS
    from storage.rows import selection_row_count
    from storage.sequences import SequenceStore

    started = time.monotonic()
    with exclusive(home.lock(name), f"study '{name}'", wait=0):
        tensors = SequenceStore.open(home.tensors(name), TENSORS).whole()
        _discard_replaced(home, name)
        device = _cuda_device(tensors.provenance)
        if not home.metrics(name).exists():
            check_space(home, name, study, tensors.sizes, 0)
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
    return Measured(home.metrics(name), len(missing), selections, violations, metrics.bytes_on_disk(), seconds)


def _discard_replaced(home: Home, name: str) -> None:
    """Remove the stores that whole tensors have replaced, should a killed process have left them."""
    for store in (home.tensors(name), home.metrics(name), home.summaries(name)):
        if isinstance(store, Path):
            discard(store)


def _measured(
    tensors: "SequenceStore", sizes: Mapping[str, int], analysis: AnalysisSettings, sequence: int, device: str | None
) -> dict[str, "NDArray[Any]"]:
    """The arrays of one sequence, computed one query after the other: together, they would read values ahead.

    ``sizes`` are those of the axes of the metrics store; what layers and queries do not fill keeps the fill.
    """
    from dask.base import compute

    from storage.arrays import SELECTION

    specs = [spec for spec in SELECTION if spec.name != "finished"]
    found = {spec.name: np.full(spec.shape(sizes)[1:], spec.fill, spec.dtype) for spec in specs}
    by_query = [spec.name for spec in specs if "query" in spec.dims]
    for size, numbers in tensors.groups().items():
        layers = _taken(numbers)
        for query in range(sizes["query"]):
            arrays = lazy_metrics(tensors, analysis, sequence, query, size, device)
            for name, array in compute({name: arrays[name][0, 0] for name in by_query})[0].items():
                found[name][(query, layers, *map(slice, array.shape[1:]))] = array
        others = {name: array[0] for name, array in arrays.items() if name not in by_query}
        for name, array in compute(others)[0].items():
            found[name][(layers, *map(slice, array.shape[1:]))] = array
    return found


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
        return SequenceStore.resume(path, SELECTION, sizes, provenance, tensors.layers)
    except UserError:
        tensors.array("attention")  # refused if it has been dropped, before what was made of it goes
        shutil.rmtree(path)
        return SequenceStore.resume(path, SELECTION, sizes, provenance, tensors.layers)


def _identity_violations(metrics: "SequenceStore") -> int:
    """How many selections break 0 ≤ K_in ≤ N, 0 ≤ K_out ≤ n − N or K_in = 1 at N = 1 (A.1)."""
    import dask.array as da

    n = da.arange(1, metrics.sizes["n"] + 1, chunks=-1)
    found = 0
    for size, numbers in metrics.groups().items():
        layers = _taken(numbers)
        k_in, k_out = (metrics.lazy(name)[:, :, layers, : size.heads] for name in ("k_in", "k_out"))
        n_keys = metrics.lazy("n_keys")[:, :, layers, None, None]
        broken = (k_in < 0) | (k_in > n) | (k_out < 0) | (k_out > n_keys - n) | ((n == 1) & (k_in != 1))
        found += int((broken & (n < n_keys)).sum().compute())
    return found


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

    def progress(path: "Place", specs: "Sequence[ArraySpec]") -> str:
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
        try:
            extracted = home.tensors(name).exists()
        except UserError:  # an object store that does not answer
            return "not known: the place of its tensors cannot be reached; see doctor"
        return f"extracted: {progress(home.tensors(name), TENSORS)}" if extracted else "not run"

    return {name: state(name) for name in studies}
