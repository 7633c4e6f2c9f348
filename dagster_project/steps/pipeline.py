"""The steps of a study, each one function from files to files; the bodies of the assets.

Holds the wiring of extraction, storage and geometry. Heavy libraries are imported inside the steps that need them.
"""

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster_project.steps.cluster import connected, scheduler_of
from dagster_project.steps.measuring import metrics_provenance, open_metrics
from dagster_project.study.home import Home
from dagster_project.study.studies import Study
from storage.errors import UserError
from storage.files.locks import exclusive

if TYPE_CHECKING:
    from dagster_project.steps.summaries import Step
    from dagster_project.steps.summaries.sources import Sources
    from extract.extraction import ExtractionReport
    from extract.settings import Shard
    from storage.files.places import Place
    from storage.zarr.arrays import ArraySpec

logger = logging.getLogger(__name__)

ROW_SUM_TOLERANCE = 2.0**-24
"""How far a row of float32 weights may be from summing to 1, for each of its keys: one rounding."""

HALF_ROW_SUM_TOLERANCE = 0.02
"""How far a row may be whose weights a model gave in half precision, as those do that are read in two passes."""

LARGE = ("attention", "values")
"""The arrays of a tensor store that are dropped on request: all but these is small."""


def extract_tensors(
    home: Home, name: str, study: Study, shard: "Shard | None" = None, *, replace: bool = False
) -> "ExtractionReport":
    """Extract the tensors of a study, or of one shard of it, or what is missing of them.

    Parameters
    ----------
    shard
        The part of the sequences to do; None: all.
    replace
        Whether a store that cannot be continued (made of other settings or inputs, damaged, or its arrays dropped)
        gives way to a new one. It is set aside and goes when the new one is whole, but in an object store, which cannot
        rename, before the new one is begun; what is published stays. One that is unfinished, and cannot be continued
        on this device or with these versions of libraries alone, is refused.

    Raises
    ------
    UserError
        If another process works on them, the disk has less space than they need, or as ``extract.extraction.extract``.
    """
    from dagster_project.study.space import check_space
    from extract.extraction import extract

    drawn = "drawing heads from Assumptions 1-3"
    reading = f"reading {study.corpus.id} with {study.model.id}"
    logger.info("%s%s: %s", name, f", shard {shard}" if shard else "", drawn if study.synthetic else reading)
    with home.claimed(name, shard):
        renewed = replace and _must_be_replaced(home, name, study)
        with home.replacing(name) if renewed else nullcontext():
            report = extract(
                study.extraction(),
                study=name,
                path=home.tensors(name),
                shard=shard,
                before=lambda sizes, _, missing: check_space(home, name, study, sizes, missing),
            )
        if renewed:
            home.discard_replaced(name)
    new = f"{report.written} of {report.sequences} sequences extracted" if report.written else "nothing to extract"
    skipped = f", {report.documents_skipped} documents too short" if report.documents_skipped else ""
    logger.info("%s: %s%s, %.1f MB, %.1f s", name, new, skipped, report.bytes / 1e6, report.seconds)
    return report


def _must_be_replaced(home: Home, name: str, study: Study) -> bool:
    """Whether there is a tensor store, and no run with these settings can go on from it."""
    from extract.extraction import why_replaced
    from storage.zarr.arrays import TENSORS
    from storage.zarr.sequences import SequenceStore

    path = home.tensors(name)
    if not path.exists():
        return False
    other = why_replaced(study.extraction(), study=name, path=path)
    return other is not None or bool(SequenceStore.open(path, TENSORS).dropped)


def missing_tensors(home: Home, name: str) -> list[int]:
    """The sequences that the ledger of a tensor store does not have."""
    from storage.zarr.arrays import TENSORS
    from storage.zarr.sequences import SequenceStore

    return SequenceStore.open(home.tensors(name), TENSORS).missing()


def row_sum_tolerance(home: Home, name: str) -> float:
    """How far the weights of a query may be from summing to 1, in the tensor store of a study."""
    from storage.zarr.arrays import TENSORS
    from storage.zarr.sequences import SequenceStore

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
    from storage.zarr.arrays import TENSORS
    from storage.zarr.sequences import SequenceStore, sweep_store

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
    from storage.files.places import bytes_on_disk
    from storage.zarr.sequences import sweep_store

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
    from storage.warehouse.connection import connect, database
    from storage.warehouse.rows import provenance_of

    if not database(home.warehouse, sources.name).exists():
        return False
    with closing(connect(home.warehouse)) as connection:
        found = connection.execute("SELECT provenance FROM studies WHERE study = ?", [sources.name]).fetchone()
    landed = json.loads(found[0]) if found else {}
    wanted = provenance_of(sources.tensors, sources.metrics, landed.get("summaries", {}))
    return bool(landed == json.loads(json.dumps(wanted)))


@dataclass(frozen=True)
class Summarised:
    """What a step between metrics and warehouse did."""

    path: Path
    """Folder of its tables."""
    rows: dict[str, int]
    """Rows of each."""
    seconds: float


def summarise(home: Home, name: str, study: Study, step: "Step") -> Summarised:
    """Make the tables of one step, unless they are there, made from the same metrics and settings.

    Raises
    ------
    UserError
        If another process works on the study, or what the step reads is not whole; or as
        ``dagster_project.steps.cluster.connected``.
    """
    from storage.files.staging import sweep
    from storage.files.tables import rows_of, write_summary

    started = time.monotonic()
    with exclusive(home.lock(name), f"study '{name}'", wait=0):
        sources, paths = open_sources(home, name, study), summary_paths(home, name, step)
        for place in (home.summaries(name), *paths.values()):
            sweep(place)
        if not _is_made(sources, step):
            check_made(sources, step.after)
            wanted = step.provenance(study.analysis, sources.metrics.provenance)
            libraries = {library: version(library) for library in ("dask", "numba", "numpy", "scipy")}
            with connected(scheduler_of(study) if step.parallel else "threads"):
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
    from storage.files.tables import made_from

    wanted = step.provenance(sources.study.analysis, sources.metrics.provenance)
    return all(made_from(sources.summaries / f"{table}.parquet") == wanted for table in step.tables)


def check_made(sources: "Sources", steps: Iterable[str]) -> None:
    """Refuse to go on from tables that are missing or stale.

    Raises
    ------
    UserError
        If the tables of one of these steps are not made from these metrics and settings.
    """
    from dagster_project.steps.summaries import STEPS

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
    from dagster_project.steps.summaries.sources import Sources
    from storage.zarr.arrays import TENSORS
    from storage.zarr.sequences import SequenceStore

    tensors = SequenceStore.open(home.tensors(name), TENSORS).whole()
    metrics = open_metrics(home, name).whole()
    wanted = metrics_provenance(name, tensors, study.analysis)
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
    from storage.warehouse.connection import connect

    with closing(connect(home.warehouse)) as connection:
        found = ask(connection, "claims", study=name).rows()
    if not found:
        msg = f"The warehouse holds nothing of the study '{name}'; run it first: attention-geometry run {name}"
        raise UserError(msg)
    return found


def states(home: Home, studies: Mapping[str, Study]) -> dict[str, str]:
    """In a few words, how far each study has come."""
    from storage.warehouse.connection import database
    from storage.zarr.arrays import SELECTION, TENSORS
    from storage.zarr.sequences import SequenceStore

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
