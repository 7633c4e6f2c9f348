"""Space: bounds that hold and are close, and the free bytes of places that are not there yet."""

from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest

from storage.files.places import LocalPlace, Place, RemotePlace
from storage.zarr.arrays import TENSORS, ArraySpec
from storage.zarr.sequences import SequenceStore
from storage.zarr.space import estimate_sequence_bytes

SIZES = {"sequence": 2, "query": 4, "layer": 4, "head": 16, "kv_head": 8, "key": 512, "head_dim": 32}


def _random(spec: ArraySpec, seed: int) -> np.ndarray:
    shape = spec.shape(SIZES)[1:]
    return np.frombuffer(np.random.default_rng(seed).bytes(prod(shape) * 4), spec.dtype).reshape(shape)


def _used(path: Place) -> int:
    """Bytes of what a disk hands out for the chunks of a store: whole blocks, to files and folders."""
    return sum(max(4096, -(-found.stat().st_size // 4096) * 4096) for found in Path(str(path)).rglob("c/**/*"))


@pytest.mark.one_case
@pytest.mark.parametrize("compressed", [False, True])
def test_a_store_takes_no_more_than_said_and_nearly_as_much(tmp_path: Path, *, compressed: bool) -> None:
    specs = tuple(replace(spec, compression="zstd" if compressed else "none") for spec in TENSORS)
    store = SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), specs, SIZES, {})
    for sequence in range(2):
        store.write(sequence, {spec.name: _random(spec, sequence) for spec in specs if spec.name != "finished"})
    bound = 2 * estimate_sequence_bytes(specs, SIZES)
    assert 0.9 * bound <= _used(store.path) <= bound  # since random bits do not compress


def test_free_bytes_of_a_place_that_is_not_there_yet(tmp_path: Path) -> None:
    free = LocalPlace(tmp_path / "not" / "there").measure_free_space()
    assert free == pytest.approx(LocalPlace(tmp_path).measure_free_space(), rel=0.2)
    assert RemotePlace("s3://bucket/folder").measure_free_space() is None


def test_folders_on_one_disk_are_told_from_object_stores(tmp_path: Path) -> None:
    here, remote = LocalPlace(tmp_path), RemotePlace("s3://bucket/folder")
    assert here.is_on_same_disk(LocalPlace(tmp_path / "not" / "there"))
    assert not here.is_on_same_disk(remote)
    if Path("/proc/self").exists():
        assert not here.is_on_same_disk(LocalPlace(Path("/proc")))
    assert not remote.is_on_same_disk(here)
    assert not remote.is_on_same_disk(remote)
