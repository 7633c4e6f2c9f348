"""The disk space that a study still takes: an estimate, and checks that disks have as much before it is used."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dagster_project.analysis.memory import format_bytes
from dagster_project.assets.asset import Extent, Work
from dagster_project.study.home import HOME_VARIABLE, METRICS_VARIABLE, TENSORS_VARIABLE
from storage.errors import UserError
from storage.files.places import LocalPlace, Place

logger = logging.getLogger(__name__)

SPARE = 2**28
"""Bytes left free for what is not counted: the report, Dagster's records, files that other programs write."""


def check_space(extent: Extent) -> None:
    """Log the space that a study still takes, if it is still to be extracted; ``UserError`` if a disk has less.

    The message names settings that would fit.
    """
    for place, parts in _group_by_place(extent):
        needed, free = sum(parts.values()) + SPARE, place.measure_free_space()
        shares = ", ".join(f"{format_bytes(size)} of {part.replace('_', ' ')}" for part, size in parts.items())
        if extent.missing:
            logger.info("%s: takes at most %s in %s", extent.work.name, shares, place)
        if free is None or needed <= free:
            continue
        remedies = [*_suggest_settings(extent, parts, free - SPARE), *_suggest_space(extent.work, place)]
        raise UserError(
            f"Study '{extent.work.name}' needs {format_bytes(needed)} in {place} ({shares}, "
            f"{format_bytes(SPARE)} to spare), but {format_bytes(free)} are free; {', or '.join(remedies)}"
        )


def estimate_space(extent: Extent) -> dict[str, int]:
    """Upper bound of the bytes that are still to be written, for every asset that states its space.

    Stores are counted as uncompressed. A database is built next to the one that it replaces, so all of it counts.
    """
    return {asset.name: asset.space(extent) for asset in extent.work.assets if asset.space is not None}


def _group_by_place(extent: Extent) -> Iterator[tuple[Place, dict[str, int]]]:
    """Group estimates by root folder or object store; stores on the disk of the data root count as in the root."""
    home, parts = extent.work.home, estimate_space(extent)
    data_root, by_place = LocalPlace(home.root), dict[Place, dict[str, int]]()
    for asset in extent.work.assets:
        if asset.name in parts:
            root = asset.places(home, "any")[0].parent
            place = data_root if root.is_on_same_disk(data_root) else root
            by_place.setdefault(place, {})[asset.name] = parts[asset.name]
    yield from by_place.items()


def _suggest_settings(extent: Extent, parts: Mapping[str, int], free: int) -> Iterator[str]:
    """Settings with which a study would fit, if nothing of it is extracted yet."""
    study = extent.work.study
    if extent.missing < study.sequences:
        return
    if fitting := _count_fitting(extent.work, extent.sizes, parts, free):
        yield f"set sequences to {fitting} or less"
    if study.values == "float32" and "tensors" in parts:
        narrow = replace(extent.work, study=study.model_copy(update={"values": "float16"}))
        if most := _count_fitting(narrow, extent.sizes, parts, free):
            yield "set values: float16" + (f" and sequences to {most} or less" if most < study.sequences else "")


def _count_fitting(work: Work, sizes: Mapping[str, int], parts: Mapping[str, int], free: int) -> int:
    """Number of sequences that would fit; each one adds the same number of bytes."""
    one, two = (
        estimate_space(Extent(replace(work, study=work.study.model_copy(update={"sequences": few})), sizes, few))
        for few in (1, 2)
    )
    first, each = sum(one[part] for part in parts), sum(two[part] - one[part] for part in parts)
    return 0 if free < first else 1 + (free - first) // each


def _suggest_space(work: Work, place: Place) -> Iterator[str]:
    """Ways to get more space: tensors to drop, and other places."""
    home = work.home
    landed = [path.stem for path in sorted(home.warehouse.glob("*.duckdb")) if path.stem != work.name]
    stores = [(other, home.tensors(other)) for other in landed]
    those = [
        f"{other} ({format_bytes(store.measure_size())})" for other, store in stores if _is_droppable(store, place)
    ]
    if those:
        yield f"drop tensors that have landed, `attention-geometry drop STUDY`, of {', '.join(those)}"
    elsewhere = TENSORS_VARIABLE if place == home.tensor_root else METRICS_VARIABLE
    variable = f"--home or {HOME_VARIABLE}" if place == LocalPlace(home.root) else elsewhere
    yield f"make room there, or choose another place with {variable}"


def _is_droppable(store: Place, place: Place) -> bool:
    """Whether a store is on the disk of ``place`` and has tensors that can be dropped."""
    from storage.zarr.arrays import TENSORS
    from storage.zarr.sequences import SequenceStore

    if not store.is_on_same_disk(place) or not store.exists():
        return False
    try:
        return not SequenceStore.open(store, TENSORS).dropped
    except UserError:
        return False
