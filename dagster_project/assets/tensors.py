"""The asset ``tensors``: attention weights and value states of a study, in a Zarr store."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from dagster_project.analysis.memory import check_extraction
from dagster_project.assets.asset import (
    Asset,
    AssetResult,
    Check,
    CheckResult,
    Extent,
    Provenance,
    Work,
    wrap_place,
)
from dagster_project.assets.space import check_space
from dagster_project.study.home import Home
from dagster_project.study.studies import find_study
from extract.models.checks import check_device
from extract.settings import EXTRACTION_VERSION, ExtractionSettings
from extract.standing import explain_replacement, explain_staleness
from reports.findings.numbers import count
from storage.errors import UserError
from storage.zarr.arrays import TENSORS, build_tensor_specs, estimate_sequence_bytes
from storage.zarr.sequences import SequenceStore

if TYPE_CHECKING:
    from extract.extraction import ExtractionReport
    from extract.settings import Shard

logger = logging.getLogger(__name__)

ROW_SUM_TOLERANCE = 2.0**-24
"""Largest deviation from 1 of the sum of a row of float32 weights, per key of the row: one rounding."""

HALF_ROW_SUM_TOLERANCE = 0.02
"""The same for a whole row of weights that a model returned in half precision, as models read in two passes do."""


def make_tensors(work: Work) -> AssetResult:
    """Extract the missing tensors of a study."""
    home, name = work.home, work.name
    with home.set_stores_aside(name) if work.force else nullcontext():
        report = extract_tensors(work)
    store = SequenceStore.open(home.tensors(name), TENSORS)
    missing, deviation, made_of = store.find_missing(), report.row_sum_deviation, store.provenance
    half = made_of["inputs"]["model"].get("attention") == "two-pass" and made_of["settings"]["dtype"] != "float32"
    tolerance = HALF_ROW_SUM_TOLERANCE if half else ROW_SUM_TOLERANCE * store.sizes["key"]
    return AssetResult(
        {
            "path": report.path,
            "sequences": report.sequences,
            "sequences written in this run": report.written,
            "bytes": report.bytes,
            "seconds": report.seconds,
            "documents read": report.documents_read,
            "documents skipped as too short": report.documents_skipped,
        },
        (
            CheckResult("ledger_complete", not missing, {"missing sequences": len(missing)}),
            CheckResult(
                "rows_sum_to_one",
                deviation is None or deviation <= tolerance,
                {"largest distance from 1": "dropped" if deviation is None else deviation, "tolerance": tolerance},
            ),
        ),
    )


@contextmanager
def check_inputs(home: Home, name: str) -> Iterator[None]:
    """Refuse a study whose inputs cannot be read; inside the context, extraction does not read them again.

    ``UserError`` as ``extract.extraction.check``; nothing has been written.
    """
    from extract.extraction import check

    with check(find_study(home, name).select_extraction(), home.tensors(name)):
        yield


def extract_tensors(work: Work, shard: "Shard | None" = None) -> "ExtractionReport":
    """Extract the missing tensors of a study, or of one shard of it.

    With ``work.replace``, a store that cannot be continued (made from other settings or inputs, damaged, or with
    dropped arrays) is replaced. It is kept under another name until the new one is complete, then removed; in an object
    store, which cannot rename, it is removed before the new one is started. Published tables stay. An unfinished store
    that cannot be continued only because the device or the versions of libraries differ is refused.

    ``UserError`` if another process works on them, or the disk or the memory is too small for them; or as for
    ``extract.extraction.extract``.
    """
    from extract.extraction import extract

    home, name, study = work.home, work.name, work.study
    if not home.tensors(name).exists():
        check_device(study.device, needs_gpu=study.needs_gpu)
    drawn = "drawing heads from Assumptions 1-3"
    reading = f"reading {study.corpus.name} with {study.model.name}"
    logger.info("%s%s: %s", name, f", shard {shard}" if shard else "", drawn if study.synthetic else reading)
    with home.claim(name, shard):
        renewed = work.replace and _needs_replacement(work)
        with home.set_stores_aside(name, claimed=True) if renewed else nullcontext():
            report = extract(
                study.select_extraction(),
                study=name,
                path=home.tensors(name),
                shard=shard,
                before=lambda sizes, missing: _check_room(Extent(work, sizes, missing)),
            )
        if renewed:
            home.discard_replaced(name)
    new = f"{report.written} of {report.sequences} sequences extracted" if report.written else "nothing to extract"
    skipped = f", {count(report.documents_skipped, 'document')} too short" if report.documents_skipped else ""
    logger.info("%s: %s%s, %.1f MB, %.1f s", name, new, skipped, report.bytes / 1e6, report.seconds)
    return report


def _check_room(extent: Extent) -> None:
    """Refuse an extraction that the disk or the memory is too small for."""
    check_space(extent)
    check_extraction(extent.work.name, _estimate_bytes(replace(extent, missing=1)))


def _needs_replacement(work: Work) -> bool:
    """Whether there is a tensor store that no run with these settings can continue."""
    path = work.home.tensors(work.name)
    if not path.exists():
        return False
    other = explain_replacement(work.study.select_extraction(), study=work.name, path=path)
    return other is not None or bool(SequenceStore.open(path, TENSORS).dropped)


def finalise_tensors(home: Home, name: str) -> int:
    """Check that no sequence of a study is missing, and remove leftovers of killed runs; return how many there are.

    ``UserError`` if a process is still working on it, or sequences are missing; the message names them.
    """
    with home.claim(name):
        store = SequenceStore.open(home.tensors(name), TENSORS)
        store.path.remove_leftovers()
        missing, total = store.find_missing(), store.sizes["sequence"]
    if missing:
        raise UserError(
            f"Study '{name}' lacks {len(missing)} of {total} sequences: {_format_ranges(missing)}; extract their "
            f"shards again (attention-geometry extract {name} --shard K/N), or all missing ones on this machine "
            f"(attention-geometry extract {name})"
        )
    return total


def _format_ranges(numbers: Sequence[int]) -> str:
    """Format ascending integers as ranges, such as 0-4, 7, 9-12."""
    ends = [at for at, (one, other) in enumerate(pairwise(numbers), start=1) if other > one + 1]
    parts = [numbers[start:stop] for start, stop in pairwise([0, *ends, len(numbers)])]
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _compare(work: Work) -> tuple[Provenance | str, None]:
    path = work.home.tensors(work.name)
    why = explain_staleness(work.study.select_extraction(), study=work.name, path=path)
    return why or Provenance(EXTRACTION_VERSION), None


def _estimate_bytes(extent: Extent) -> int:
    """Uncompressed bytes of the missing sequences."""
    return estimate_sequence_bytes(build_tensor_specs(**extent.work.study.stored), extent.sizes) * extent.missing


TENSOR_STORE = Asset(
    name="tensors",
    about="Softmax weights of the study's queries and value states of every head, for every sequence of the study.",
    parents=(),
    kinds=("torch", "zarr"),
    version=lambda: str(EXTRACTION_VERSION),
    make=make_tensors,
    compare=_compare,
    places=wrap_place(Home.tensors),
    checks=lambda: (
        Check("ledger_complete", "Every sequence of the study is in the ledger."),
        Check(
            "rows_sum_to_one",
            "The weights of every head and query, and its learned sink, sum to 1 within float32: at most one rounding "
            "per key. Dropped weights were checked when they were extracted.",
        ),
    ),
    settings=tuple(ExtractionSettings.model_fields),
    space=_estimate_bytes,
    pool="gpu",
)
