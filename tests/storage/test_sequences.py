"""SequenceStore: aligned writes, a ledger after the data, refusals that name what differs."""

from pathlib import Path

import numpy as np
import pytest
import zarr

from storage.arrays import CHUNK_BYTES, SELECTION, TENSORS, ArraySpec
from storage.errors import UserError
from storage.sequences import SequenceStore
from tests.storage.studies import SIZES, one_sequence, provenance, tensor_store


def test_what_was_written_is_read(tmp_path: Path) -> None:
    store = tensor_store(tmp_path / "tensors.zarr")
    for name in ("attention", "values", "tokens", "first_key", "query_position"):
        assert store.array(name).shape == tuple(SIZES[dim] for dim in store.specs[name].dims)
        np.testing.assert_array_equal(store.lazy(name)[2].compute(), one_sequence(2)[name])
    assert store.missing() == []
    assert store.bytes_on_disk() > 0


def test_values_are_compressed_and_shuffled_float32_and_described(tmp_path: Path) -> None:
    array = zarr.open_group(tensor_store(tmp_path / "tensors.zarr").path, mode="r")["values"]
    assert array.dtype == np.float32
    assert array.shards == (1, *array.shape[1:])
    assert array.compressors[0].to_dict()["configuration"]["cname"] == "zstd"
    assert array.compressors[0].to_dict()["configuration"]["shuffle"] == "shuffle"
    assert array.metadata.dimension_names == ("sequence", "layer", "kv_head", "key", "head_dim")
    assert array.attrs["unit"] == "model units"
    assert "value state" in array.attrs["meaning"]


def test_an_unwritten_sequence_is_missing_and_reads_as_nan(tmp_path: Path) -> None:
    store = SequenceStore.resume(tmp_path / "s.zarr", TENSORS, SIZES, provenance())
    store.write(1, one_sequence(1))
    assert store.missing() == [0, 2]
    assert np.isnan(store.array("attention")[0]).all()


def test_the_ledger_is_written_after_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SequenceStore.resume(tmp_path / "s.zarr", TENSORS, SIZES, provenance())
    array = store.array

    def failing(name: str) -> zarr.Array:
        if name == "tokens":
            raise OSError(28, "No space left on device")
        return array(name)

    monkeypatch.setattr(store, "array", failing)
    with pytest.raises(OSError, match="No space left"):
        store.write(0, one_sequence(0))
    monkeypatch.undo()
    assert store.missing() == [0, 1, 2]


@pytest.mark.parametrize("change", ["shape", "missing", "extra"])
def test_a_sequence_of_another_shape_is_refused(tmp_path: Path, change: str) -> None:
    store = SequenceStore.resume(tmp_path / "s.zarr", TENSORS, SIZES, provenance())
    arrays = one_sequence(0)
    if change == "shape":
        arrays["tokens"] = arrays["tokens"][1:]
    elif change == "missing":
        del arrays["values"]
    else:
        arrays["more"] = arrays["values"]
    with pytest.raises(ValueError, match=r"one sequence of s\.zarr needs the shapes"):
        store.write(0, arrays)
    assert store.missing() == [0, 1, 2]


def test_another_provenance_is_refused_with_its_fields(tmp_path: Path) -> None:
    tensor_store(tmp_path / "s.zarr")
    with pytest.raises(UserError, match=r"settings\.dtype \(stored 'float32', asked 'bfloat16'\).*--fresh"):
        SequenceStore.resume(tmp_path / "s.zarr", TENSORS, SIZES, provenance(dtype="bfloat16"))
    with pytest.raises(UserError, match=r"sizes\.key \(stored 12, asked 13\)"):
        SequenceStore.resume(tmp_path / "s.zarr", TENSORS, SIZES | {"key": 13}, provenance())


def test_other_library_versions_matter_only_while_unfinished(tmp_path: Path) -> None:
    newer = provenance() | {"versions": {"torch": "9.9"}}
    tensor_store(tmp_path / "whole.zarr")
    assert SequenceStore.resume(tmp_path / "whole.zarr", TENSORS, SIZES, newer).missing() == []
    SequenceStore.resume(tmp_path / "part.zarr", TENSORS, SIZES, provenance()).write(0, one_sequence(0))
    with pytest.raises(UserError, match=r"versions\.torch"):
        SequenceStore.resume(tmp_path / "part.zarr", TENSORS, SIZES, newer)


def test_foreign_and_older_stores_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no store at"):
        SequenceStore.open(tmp_path / "none.zarr", TENSORS)
    store = tensor_store(tmp_path / "s.zarr")
    with pytest.raises(UserError, match="has no array 'k_in'"):
        SequenceStore.open(store.path, SELECTION)
    zarr.open_group(store.path).attrs["format_version"] = 0
    with pytest.raises(UserError, match=r"format version 0.*--fresh"):
        SequenceStore.open(store.path, TENSORS)


def test_a_failed_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: ArraySpec, _sizes: dict[str, int]) -> tuple[int, ...]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ArraySpec, "shard", broken)
    with pytest.raises(OSError, match="No space"):
        SequenceStore.resume(tmp_path / "s.zarr", TENSORS, SIZES, provenance())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"zarr_format": 3}'])
def test_a_damaged_store_is_named(tmp_path: Path, text: str) -> None:
    store = tensor_store(tmp_path / "s.zarr")
    for damaged in (store.path / "values" / "zarr.json", store.path / "zarr.json"):
        damaged.write_text(text)
        with pytest.raises(UserError, match=r"s\.zarr.*--fresh"):
            SequenceStore.open(store.path, TENSORS)


def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    store = tensor_store(tmp_path / "s.zarr")
    (tmp_path / f"s.zarr.{'0a' * 16}.partial" / "values").mkdir(parents=True)
    (store.path / "values" / "c" / "half.partial").touch()
    tensor_store(store.path)
    assert [path.name for path in tmp_path.rglob("*.partial")] == []


def test_damaged_bytes_are_detected(tmp_path: Path) -> None:
    store = tensor_store(tmp_path / "s.zarr")
    shard = next(path for path in (store.path / "values" / "c" / "0").rglob("*") if path.is_file())
    data = bytearray(shard.read_bytes())
    data[len(data) // 3] ^= 0xFF
    shard.write_bytes(data)
    with pytest.raises(ValueError, match="checksum"):
        store.array("values")[0]


def test_chunks_stay_below_their_bytes_and_divide_their_shards() -> None:
    sizes = {"sequence": 2, "query": 5, "layer": 3, "head": 24, "kv_head": 24, "key": 8192, "head_dim": 128}
    sizes |= {"kappa": 16, "n": 8191}
    for spec in (*TENSORS, *SELECTION):
        chunk, shard = spec.chunk(sizes), spec.shard(sizes)
        assert np.prod(chunk) * np.dtype(spec.dtype).itemsize <= CHUNK_BYTES
        assert all(long % short == 0 for long, short in zip(shard, chunk, strict=True))
    values = next(spec for spec in TENSORS if spec.name == "values")
    assert values.chunk(sizes) == (1, 1, 8, 8192, 128)
    bound = next(spec for spec in SELECTION if spec.name == "recall_upper")
    assert bound.chunk(sizes) == (1, 1, 1, 24, 16, 8191)
    assert bound.chunk(sizes | {"n": 32767}) == (1, 1, 1, 12, 16, 32767)


def test_every_array_is_declared_once_and_whole() -> None:
    for specs in (TENSORS, SELECTION):
        assert len({spec.name for spec in specs}) == len(specs)
        for spec in specs:
            assert spec.dims[0] == "sequence"
            assert spec.unit
            assert spec.meaning
            assert set(spec.whole) <= set(spec.dims)
