"""The asset ``tensors``: attention weights and value states of a study, in a Zarr store."""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from dagster_project.steps.assets import Asset, Check, Checked, Extent, Made, MadeOf, Snapshot, Work, single_place
from dagster_project.steps.memory import check_extraction
from dagster_project.steps.space import check_space
from dagster_project.study.home import Home
from extract.preflight import check_device
from extract.settings import EXTRACTION_VERSION, ExtractionSettings
from extract.standing import why_replaced, why_stale
from reports.findings.numbers import count
from storage.errors import UserError
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from storage.zarr.space import sequence_bytes

if TYPE_CHECKING:
    from extract.extraction import ExtractionReport
    from extract.settings import Shard

logger = logging.getLogger(__name__)

ROW_SUM_TOLERANCE = 2.0**-24
"""How far a row of float32 weights may be from summing to 1, for each of its keys: one rounding."""

HALF_ROW_SUM_TOLERANCE = 0.02
"""How far a row may be whose weights a model gave in half precision, as those do that are read in two passes."""


def make_tensors(work: Work) -> Made:
    """Extract what is missing of a study's tensors."""
    home, name = work.home, work.name
    with home.without_stores(name) if work.force else nullcontext():
        report = extract_tensors(work)
    missing, deviation, tolerance = missing_tensors(home, name), report.row_sum_deviation, row_sum_tolerance(home, name)
    return Made(
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
            Checked("ledger_complete", not missing, {"missing sequences": len(missing)}),
            Checked(
                "rows_sum_to_one",
                deviation is None or deviation <= tolerance,
                {"largest distance from 1": "dropped" if deviation is None else deviation, "tolerance": tolerance},
            ),
        ),
    )


def extract_tensors(work: Work, shard: "Shard | None" = None) -> "ExtractionReport":
    """Extract the tensors of a study, or of one shard of it, or what is missing of them.

    With ``work.replace``, a store that cannot be continued (made of other settings or inputs, damaged, or its arrays
    dropped) is replaced. It is set aside and removed when the new one is complete; in an object store, which cannot
    rename, it is removed before the new one is begun. What is published stays. A store that is unfinished, and cannot
    be continued only because of this device or these versions of libraries, is refused.

    Parameters
    ----------
    work
        The study.
    shard
        The part of the sequences to extract; None: all.

    Raises
    ------
    UserError
        If another process works on them, the disk or the memory has less room than they need, or as
        ``extract.extraction.extract``.
    """
    from extract.extraction import extract

    home, name, study = work.home, work.name, work.study
    if not home.tensors(name).exists():
        check_device(study.device, needs_gpu=study.needs_gpu)
    drawn = "drawing heads from Assumptions 1-3"
    reading = f"reading {study.corpus.id} with {study.model.id}"
    logger.info("%s%s: %s", name, f", shard {shard}" if shard else "", drawn if study.synthetic else reading)
    with home.claimed(name, shard):
        renewed = work.replace and _must_be_replaced(work)
        with home.replacing(name) if renewed else nullcontext():
            report = extract(
                study.extraction(),
                study=name,
                path=home.tensors(name),
                shard=shard,
                before=lambda sizes, _, missing: _check_room(Extent(home, name, study, sizes, missing), work.assets),
            )
        if renewed:
            home.discard_replaced(name)
    new = f"{report.written} of {report.sequences} sequences extracted" if report.written else "nothing to extract"
    skipped = f", {count(report.documents_skipped, 'document')} too short" if report.documents_skipped else ""
    logger.info("%s: %s%s, %.1f MB, %.1f s", name, new, skipped, report.bytes / 1e6, report.seconds)
    return report


def _check_room(extent: Extent, assets: tuple[Asset, ...]) -> None:
    """Refuse what the disk, or the memory, has no room for."""
    check_space(extent, assets)
    check_extraction(extent.name, extent.sizes)


def _must_be_replaced(work: Work) -> bool:
    """Whether there is a tensor store that no run with these settings can continue."""
    path = work.home.tensors(work.name)
    if not path.exists():
        return False
    other = why_replaced(work.study.extraction(), study=work.name, path=path)
    return other is not None or bool(SequenceStore.open(path, TENSORS).dropped)


def missing_tensors(home: Home, name: str) -> list[int]:
    """The sequences that the ledger of a tensor store does not have."""
    return SequenceStore.open(home.tensors(name), TENSORS).missing()


def row_sum_tolerance(home: Home, name: str) -> float:
    """How far the weights of a query may be from summing to 1, in the tensor store of a study."""
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
    with home.claimed(name):
        store = SequenceStore.open(home.tensors(name), TENSORS)
        store.path.sweep()
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


def _recorded(snapshot: Snapshot) -> MadeOf | str:
    path = snapshot.home.tensors(snapshot.name)
    return why_stale(snapshot.study.extraction(), study=snapshot.name, path=path) or MadeOf(EXTRACTION_VERSION)


def _bytes(extent: Extent) -> int:
    """Bytes of the sequences that are missing, as if nothing were compressed."""
    specs = [replace(spec, dtype=extent.study.values) if spec.narrower else spec for spec in TENSORS]
    return sequence_bytes(specs, extent.sizes) * extent.missing


TENSOR_STORE = Asset(
    name="tensors",
    about="Softmax weights of the study's queries and value states of every head, for every sequence of the study.",
    parents=(),
    kinds=("torch", "zarr"),
    version=lambda: str(EXTRACTION_VERSION),
    make=make_tensors,
    expected=lambda _: None,
    recorded=_recorded,
    places=single_place(Home.tensors),
    checks=lambda: (
        Check("ledger_complete", "Every sequence of the study is in the ledger."),
        Check(
            "rows_sum_to_one",
            "The weights of every head and query, and its learned sink, sum to 1 within float32: at most one rounding "
            "per key. Weights that have been dropped were checked before.",
        ),
    ),
    settings=tuple(ExtractionSettings.model_fields),
    space=_bytes,
    pool="gpu",
)
