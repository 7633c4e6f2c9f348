"""Space: what a study will take on its disks, said before anything is written, and refused where it will not fit.

Holds the sum and what to do about it.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from dagster_project.study.home import HOME_VARIABLE, METRICS_VARIABLE, TENSORS_VARIABLE, Home
from dagster_project.study.studies import Study
from storage.errors import UserError
from storage.files.places import Place, bytes_on_disk
from storage.zarr.arrays import SELECTION, TENSORS
from storage.zarr.sequences import SequenceStore
from storage.zarr.space import free_bytes, sequence_bytes

logger = logging.getLogger(__name__)

SPARE = 2**28
"""Bytes left free for what is not counted: the report, Dagster's records, what other programs write meanwhile."""

SELECTION_BYTES, KAPPA_BYTES = 100, 8
"""Bytes in the tables for every selection (a sequence, query, layer, head and N), and for each of its κ on top."""

MEAN_BYTES, MEAN_KAPPA_BYTES = 350, 60
"""The same for every selection of one sequence: means, bounds and diagnostics over all sequences have rows for each."""

EMPTY_TABLES = 12 * 10**6
"""Bytes of tables that hold next to nothing. These five are held against real landings in the tests."""


def check_space(home: Home, name: str, study: Study, sizes: Mapping[str, int], missing: int) -> None:
    """Say what a study will take, if it is still to be extracted, and refuse it where there is less.

    Parameters
    ----------
    sizes
        Sizes of the tensor store's axes.
    missing
        Sequences that are still to be extracted, by this process or others.

    Raises
    ------
    UserError
        If a disk has less; the message names settings that would fit.
    """
    for place, parts in _by_place(home, needs(home, name, study, sizes, missing)):
        needed, free = sum(parts.values()) + SPARE, free_bytes(place)
        shares = ", ".join(f"{gigabytes(size)} of {part}" for part, size in parts.items())
        if missing:
            logger.info("%s: takes at most %s in %s", name, shares, place)
        if free is None or needed <= free:
            continue
        remedies = [*_settings(home, name, study, sizes, missing, parts, free - SPARE), *_room(home, name, place)]
        msg = (
            f"Study '{name}' needs {gigabytes(needed)} in {place} ({shares}, {gigabytes(SPARE)} to spare), "
            f"but {gigabytes(free)} are free; {', or '.join(remedies)}"
        )
        raise UserError(msg)


def needs(home: Home, name: str, study: Study, sizes: Mapping[str, int], missing: int) -> dict[str, int]:
    """Bytes that are still to come, at most, of ``tensors``, ``metrics`` and ``tables``.

    Stores are taken as uncompressed. Tables are made aside and then replace those of the study, so all of them count.
    """
    tensors = [replace(spec, dtype=study.values) if spec.narrower else spec for spec in TENSORS]
    kappas = len(study.analysis.kappas)
    metrics = sequence_bytes(SELECTION, {**sizes, "kappa": kappas, "n": max(study.query_positions)})
    selections = sizes["layer"] * sizes["head"] * sum(study.query_positions)
    by_sequence = study.sequences * (SELECTION_BYTES + KAPPA_BYTES * kappas)
    return {
        "tensors": sequence_bytes(tensors, sizes) * missing,
        "metrics": metrics * (missing if home.metrics(name).exists() else study.sequences),
        "tables": EMPTY_TABLES + selections * (by_sequence + MEAN_BYTES + MEAN_KAPPA_BYTES * kappas),
    }


def _by_place(home: Home, parts: Mapping[str, int]) -> list[tuple[Place, dict[str, int]]]:
    """The same, by the place where it will lie; what lies on the disk of the data root counts as in it."""
    found: dict[Place, dict[str, int]] = {}
    for part, size in parts.items():
        place = {"tensors": home.tensor_root, "metrics": home.metric_root}.get(part)
        if place is None or (isinstance(place, Path) and _disk(place) == _disk(home.root)):
            place = home.root
        found.setdefault(place, {})[part] = size
    return list(found.items())


def _disk(folder: Path) -> int:
    """The disk of a folder, or of the nearest one above it that is there."""
    return next(above for above in (folder, *folder.parents) if above.exists()).stat().st_dev


def _settings(
    home: Home, name: str, study: Study, sizes: Mapping[str, int], missing: int, parts: Mapping[str, int], free: int
) -> Iterator[str]:
    """Settings with which a study, as long as nothing of it is extracted, would need less of a place."""
    if missing < study.sequences:
        return
    if fitting := _fitting(home, name, study, sizes, parts, free):
        yield f"set sequences to {fitting} or less"
    narrow = study.model_copy(update={"values": "float16"})
    if study.values == "float32" and "tensors" in parts and (most := _fitting(home, name, narrow, sizes, parts, free)):
        yield "set values: float16" + (f" and sequences to {most} or less" if most < study.sequences else "")


def _fitting(home: Home, name: str, study: Study, sizes: Mapping[str, int], parts: Mapping[str, int], free: int) -> int:
    """How many sequences would fit: what a study takes grows by the same with each."""
    one, two = (needs(home, name, study.model_copy(update={"sequences": count}), sizes, count) for count in (1, 2))
    first, each = sum(one[part] for part in parts), sum(two[part] - one[part] for part in parts)
    return 0 if free < first else 1 + (free - first) // each


def _room(home: Home, name: str, place: Place) -> Iterator[str]:
    """Where space can be had."""
    landed = [path.stem for path in sorted(home.warehouse.glob("*.duckdb")) if path.stem != name]
    stores = [(other, home.tensors(other)) for other in landed]
    those = [f"{other} ({gigabytes(bytes_on_disk(store))})" for other, store in stores if _droppable(store, place)]
    if those:
        yield f"drop tensors that have landed, `attention-geometry drop STUDY`, of {', '.join(those)}"
    elsewhere = TENSORS_VARIABLE if place == home.tensor_root else METRICS_VARIABLE
    variable = f"--home or {HOME_VARIABLE}" if place == home.root else elsewhere
    yield f"make room there, or choose another place with {variable}"


def _droppable(store: Place, place: Place) -> bool:
    """Whether a store lies on the disk of ``place`` and has tensors that can be dropped."""
    if not isinstance(store, Path) or not isinstance(place, Path) or not store.exists() or _disk(store) != _disk(place):
        return False
    try:
        return not SequenceStore.open(store, TENSORS).dropped
    except UserError:
        return False


def gigabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
