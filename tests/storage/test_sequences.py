"""SequenceStore: aligned writes, a ledger after the data, refusals that name what differs."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore

from storage.errors import UserError
from storage.files.places import LocalPlace, Place
from storage.zarr.arrays import (
    CHUNK_BYTES,
    TENSORS,
    ArraySpec,
    Compression,
    LayerSize,
    build_tensor_specs,
    estimate_sequence_bytes,
)
from storage.zarr.sequences import WRITING, SequenceStore
from tests.memory import trace
from tests.storage.studies import SIZES, one_sequence, provenance, tensor_store


def _plain(path: Path | Place) -> zarr.Group:
    """A store as any program reads it."""
    return zarr.open_group(Path(str(path)), mode="r")


def _plain_to_write(path: Place) -> zarr.Group:
    return zarr.open_group(Path(str(path)), mode="r+")


BLOCKS: list[Any] = [
    ...,
    (1, 1),
    (-2, slice(None), slice(1, None)),
    (slice(1, 3), 0, slice(0, 1), slice(None), slice(2, -1)),
    (slice(None), slice(0, 1), 1, -1),
    (slice(3, 1), slice(None), 0),
]


def test_a_store_is_read_as_numpy_reads_it(tmp_path: Path) -> None:
    """With chunks that are fill; sequence 2 is not written."""
    store = SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), TENSORS, SIZES, provenance())
    written = [one_sequence(0), one_sequence(1)]
    written[1]["values"][1, 0] = np.nan
    for sequence, arrays in enumerate(written):
        store.write(sequence, arrays)
    assert store.find_missing() == [2]
    for name in ("values", "attention"):
        whole = np.stack([*(arrays[name] for arrays in written), np.full_like(written[0][name], np.nan)])
        for index in BLOCKS:
            found = store.read(name, index)
            assert (found.dtype, found.shape) == (whole.dtype, whole[index].shape)
            np.testing.assert_array_equal(found, whole[index])
    store.verify()


def test_the_ledger_is_written_after_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), TENSORS, SIZES, provenance())
    array = store.array

    def failing(name: str) -> zarr.Array:
        if name == "tokens":
            raise OSError(28, "No space left on device")
        return array(name)

    monkeypatch.setattr(store, "array", failing)
    with pytest.raises(OSError, match="No space left"):
        store.write(0, one_sequence(0))
    monkeypatch.undo()
    assert store.find_missing() == [0, 1, 2]


@pytest.mark.parametrize("change", ["shape", "missing", "extra"])
def test_a_sequence_of_another_shape_is_refused(tmp_path: Path, change: str) -> None:
    store = SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), TENSORS, SIZES, provenance())
    arrays = one_sequence(0)
    if change == "shape":
        arrays["tokens"] = arrays["tokens"][1:]
    elif change == "missing":
        del arrays["values"]
    else:
        arrays["more"] = arrays["values"]
    with pytest.raises(ValueError, match=r"one sequence of s\.zarr needs the shapes"):
        store.write(0, arrays)
    assert store.find_missing() == [0, 1, 2]


def test_another_provenance_is_refused_with_its_fields(tmp_path: Path) -> None:
    tensor_store(tmp_path / "s.zarr")
    with pytest.raises(UserError, match=r"settings\.dtype \(stored 'float32', requested 'bfloat16'\).*--fresh"):
        SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), TENSORS, SIZES, provenance(dtype="bfloat16"))
    with pytest.raises(UserError, match=r"sizes\.key \(stored 12, requested 13\)"):
        SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), TENSORS, SIZES | {"key": 13}, provenance())


def test_other_library_versions_matter_only_while_unfinished(tmp_path: Path) -> None:
    newer = provenance() | {"versions": {"torch": "9.9"}}
    tensor_store(tmp_path / "whole.zarr")
    assert SequenceStore.resume(LocalPlace(tmp_path / "whole.zarr"), TENSORS, SIZES, newer).find_missing() == []
    SequenceStore.resume(LocalPlace(tmp_path / "part.zarr"), TENSORS, SIZES, provenance()).write(0, one_sequence(0))
    with pytest.raises(UserError, match=r"versions\.torch"):
        SequenceStore.resume(LocalPlace(tmp_path / "part.zarr"), TENSORS, SIZES, newer)


def test_foreign_and_older_stores_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no store at"):
        SequenceStore.open(LocalPlace(tmp_path / "none.zarr"), TENSORS)
    store = tensor_store(tmp_path / "s.zarr")
    foreign = ArraySpec("k_in", ("sequence", "query"), "int32", "keys", "of another kind of store")
    with pytest.raises(UserError, match="has no array 'k_in'"):
        SequenceStore.open(store.path, (foreign,))
    _plain_to_write(store.path).attrs["format_version"] = 0
    with pytest.raises(UserError, match=r"format version 0.*--fresh"):
        SequenceStore.open(store.path, TENSORS)


def test_a_failed_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: ArraySpec, _sizes: dict[str, int]) -> tuple[int, ...]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ArraySpec, "chunk", broken)
    with pytest.raises(OSError, match="No space"):
        SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), TENSORS, SIZES, provenance())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"zarr_format": 3}'])
def test_a_damaged_store_is_named(tmp_path: Path, text: str) -> None:
    store = tensor_store(tmp_path / "s.zarr")
    for damaged in (Path(store.path) / "values" / "zarr.json", Path(store.path) / "zarr.json"):
        damaged.write_text(text)
        with pytest.raises(UserError, match=r"s\.zarr.*--fresh"):
            SequenceStore.open(store.path, TENSORS)


def _leave_half_written(store: SequenceStore, folder: Path) -> None:
    (folder / f"s.zarr.{'0a' * 16}.partial" / "values").mkdir(parents=True)
    (Path(store.path) / "values" / "c" / f"0.{'0b' * 16}.partial").touch()
    (Path(store.path) / "values" / f"c.{'0c' * 16}.partial").mkdir()
    (Path(store.path) / "values" / f"c.{'0c' * 16}.partial" / "0").touch()


def test_leftovers_of_a_killed_writer_are_removed_by_who_is_alone(tmp_path: Path) -> None:
    store = tensor_store(tmp_path / "s.zarr")
    _leave_half_written(store, tmp_path)
    SequenceStore.resume(store.path, TENSORS, SIZES, provenance(), alone=False)
    assert len(list(tmp_path.rglob("*.partial"))) == 3
    SequenceStore.resume(store.path, TENSORS, SIZES, provenance())
    assert not list(tmp_path.rglob("*.partial"))
    _leave_half_written(store, tmp_path)
    store.path.remove_leftovers()
    assert not list(tmp_path.rglob("*.partial"))
    LocalPlace(tmp_path / "none.zarr").remove_leftovers()


def _damage(shard: Path, how: str) -> None:
    data = bytearray(shard.read_bytes())
    if how == "missing":
        shard.unlink()
    elif how == "flipped":
        data[7] ^= 0xFF  # in the chunk that all below read
        shard.write_bytes(data)
    else:
        shard.write_bytes(data[: len(data) // 2 if how == "cut" else 0])


READS: dict[str, Callable[[SequenceStore, str], object]] = {
    "one sequence": lambda store, name: store.read(name, 1),
    "a part of it": lambda store, name: store.read(name, (1, 0)),
    "all": lambda store, name: store.read(name, ...),
    "a part of all": lambda store, name: store.read(name, (slice(None), 0)),
    "a part of some": lambda store, name: store.read(name, (slice(1, 2), slice(1))),
}


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["attention", "first_key"])
@pytest.mark.parametrize("how", ["flipped", "missing", "empty", "cut"])
def test_damage_is_said_in_a_line_that_names_the_sequence(tmp_path: Path, how: str, name: str) -> None:
    store = tensor_store(tmp_path / "s.zarr")
    _damage(next((Path(store.path) / name).rglob("c/1/0/0*")) / ("0/0" if name == "attention" else ""), how)
    for read in READS.values():
        with pytest.raises(
            UserError,
            match=rf"^The array '{name}' of .*s\.zarr is damaged in sequence 1; run again with --fresh[^\n]*$",
        ):
            read(store, name)
    np.testing.assert_array_equal(store.read(name, slice(2, None))[0], one_sequence(2)[name])


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    store = tensor_store(tmp_path / "s.zarr")
    _damage(Path(store.path) / "finished" / "c" / "2", "cut")
    with pytest.raises(UserError, match=r"'finished' of .*damaged in sequence 2; run again with --fresh"):
        store.find_missing()


def test_nothing_but_fill_is_no_damage(tmp_path: Path) -> None:
    """Layers without attention, and sequences that are not finished; a killed writer leaves some of their arrays."""
    store = SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), TENSORS, SIZES, provenance())
    arrays = one_sequence(1)
    for name in ("attention", "values", "first_key"):
        arrays[name][:] = store.specs[name].fill
    store.write(1, arrays)
    for name in ("attention", "values", "first_key"):
        for read in READS.values():
            read(store, name)
    (Path(store.path) / "finished" / "c" / "1").unlink()
    _damage(Path(store.path) / "first_key" / "c" / "1" / "0" / "0", "missing")
    assert (store.read("first_key", 1) == -1).all()


def test_chunks_stay_below_their_bytes_and_divide_their_arrays() -> None:
    sizes = {"sequence": 2, "query": 5, "layer": 3, "head": 24, "kv_head": 24, "key": 8192, "head_dim": 128}
    for spec in TENSORS:
        chunk, shape = spec.chunk(sizes), spec.shape(sizes)
        assert np.prod(chunk) * np.dtype(spec.dtype).itemsize <= max(CHUNK_BYTES, np.prod(chunk[-2:]) * 4)
        assert all(long % short == 0 for long, short in zip(shape, chunk, strict=True))
    values = next(spec for spec in TENSORS if spec.name == "values")
    assert values.chunk(sizes) == (1, 1, 8, 8192, 128)


def test_an_array_that_a_store_lacks_reads_as_fill(tmp_path: Path) -> None:
    """An optional one: any other is refused (``test_foreign_and_older_stores_are_refused``)."""
    optional = {spec.name: spec for spec in TENSORS if spec.optional}
    earlier = [spec for spec in TENSORS if not spec.optional]
    SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), earlier, SIZES, provenance()).write(1, one_sequence(1))
    store = SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), TENSORS, SIZES, provenance())
    patterns = {"head_patterns", "pattern_chance", "pattern_queries"}
    patterns |= {"probe_patterns", "probe_chance", "probe_queries", "query_measures", "context_means", "query_keys"}
    assert store.absent == optional.keys() == {"received_attention", *patterns}
    assert store.dropped == ()
    before = sorted(Path(store.path).rglob("*"))
    given = {name: np.ones(spec.shape(SIZES)[1:], np.float32) for name, spec in optional.items()}
    store.write(0, one_sequence(0) | given)  # what there is no array for is not written
    assert {path.relative_to(Path(store.path)).parts[0] for path in set(Path(store.path).rglob("*")) - set(before)} == {
        *(spec.name for spec in earlier),
        "checksums",
    }
    for name, spec in optional.items():
        for found in (store.read(name, ...), store.read(name, slice(None))):
            assert found.shape == spec.shape(SIZES)
            assert found.dtype == np.float32
            assert np.isnan(found).all()
        index = (slice(None), *[0] * (len(spec.dims) - 1))
        np.testing.assert_array_equal(store.read(name, index), np.full(3, np.nan))
        assert np.isnan(store.read(name, tuple([1] * len(spec.dims))))
        with pytest.raises(UserError, match=f"has no array '{name}'"):
            store.array(name)


def test_an_optional_array_left_out_of_a_sequence_is_fill_there(tmp_path: Path) -> None:
    store = SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), TENSORS, SIZES, provenance())
    spec = next(spec for spec in TENSORS if spec.name == "received_attention")
    received = np.full(spec.shape(SIZES)[1:], 0.5, np.float32)
    store.write(0, one_sequence(0) | {spec.name: received})
    store.write(1, one_sequence(1))
    np.testing.assert_array_equal(store.read(spec.name, 0), received)
    assert np.isnan(store.read(spec.name, 1)).all()  # written, and so not damaged
    with pytest.raises(ValueError, match="needs the shapes"):
        store.write(2, one_sequence(2) | {spec.name: received[:1]})


LAYERS = (LayerSize(4, 2, 4), LayerSize(0, 0, 0), LayerSize(2, 1, 2), LayerSize(4, 2, 4))


def test_layers_are_kept(tmp_path: Path) -> None:
    sizes = SIZES | {"layer": 4}
    store = SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), TENSORS, sizes, provenance(), LAYERS)
    assert SequenceStore.open(store.path, TENSORS).layers == LAYERS
    SequenceStore.resume(store.path, TENSORS, sizes, provenance(), LAYERS)
    changed = (*LAYERS[:2], LayerSize(2, 2, 2), LAYERS[3])
    with pytest.raises(UserError, match=r"layer 2\.kv_heads \(stored 1, requested 2\)\. Run"):
        SequenceStore.resume(store.path, TENSORS, sizes, provenance(), changed)
    alike = SequenceStore.resume(LocalPlace(tmp_path / "alike.zarr"), TENSORS, SIZES, provenance())
    assert alike.layers == (LayerSize(4, 2, 4),) * 2
    assert _plain(store.path).attrs["layers"][2] == asdict(LAYERS[2])


def test_value_states_are_stored_in_half_and_read_as_float32(tmp_path: Path) -> None:
    specs = build_tensor_specs(values="float16", computed="float32")
    store = SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), specs, SIZES, provenance())
    arrays = one_sequence(0)
    store.write(0, arrays)
    half = arrays["values"].astype(np.float16)
    assert _plain(store.path)["values"].dtype == np.float16
    for opened in (store, SequenceStore.open(store.path, TENSORS), SequenceStore.open(store.path, specs)):
        for found in (opened.read("values", 0), opened.read("values", ...)[0]):
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, half)
    with pytest.raises(UserError, match=r"types\.values \(stored 'float16', requested 'float32'\)"):
        SequenceStore.resume(store.path, TENSORS, SIZES, provenance())
    with pytest.raises(UserError, match=r"types\.values \(stored 'float32', requested 'float16'\)"):
        SequenceStore.resume(tensor_store(tmp_path / "t.zarr").path, specs, SIZES, provenance())


def test_numbers_too_large_for_their_type_are_refused(tmp_path: Path) -> None:
    store = SequenceStore.resume(
        LocalPlace(tmp_path / "s.zarr"), build_tensor_specs(values="float16", computed="bfloat16"), SIZES, provenance()
    )
    arrays = one_sequence(2)
    arrays["values"][1, 1, 3, 2] = 7e4
    with pytest.raises(UserError, match=r"Sequence 2 .*'values'.*float16.*values: float32"):
        store.write(2, arrays)
    assert store.find_missing() == [0, 1, 2]


def test_dropped_arrays_are_gone_and_said_to_be(tmp_path: Path) -> None:
    store = tensor_store(tmp_path / "s.zarr")
    store.drop(["values"])
    store.drop(["attention", "values"])
    again = SequenceStore.resume(store.path, TENSORS, SIZES, provenance())
    again.verify()
    assert again.dropped == store.dropped == ("attention", "values")
    assert again.find_missing() == []
    assert not (Path(store.path) / "values" / "c").exists()
    for read in (again.array, lambda name: again.read(name, 0)):
        with pytest.raises(UserError, match=r"'values' of .*s\.zarr has been dropped.*run again with --fresh"):
            read("values")
    with pytest.raises(UserError, match="dropped"):
        again.write(0, one_sequence(0))
    np.testing.assert_array_equal(again.read("tokens", 1), one_sequence(1)["tokens"])
    for name in ("finished", "nothing"):
        with pytest.raises(ValueError, match=rf"cannot drop \['{name}'\]"):
            store.drop([name])


def test_a_killed_drop_leaves_arrays_whole_or_dropped_and_another_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the chunks of one are renamed and some of their files are deleted."""
    names, store = ("attention", "values"), tensor_store(tmp_path / "s.zarr")

    def deleting(path: Path, **_: object) -> None:
        next(file for file in path.rglob("*") if file.is_file()).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("storage.files.staging.shutil", SimpleNamespace(rmtree=deleting))
        with pytest.raises(KeyboardInterrupt):
            store.drop(names)
    store = SequenceStore.resume(store.path, TENSORS, SIZES, provenance(), alone=False)
    assert store.dropped == ("attention",)
    with pytest.raises(UserError, match=r"'attention' .*dropped.*--fresh"):
        store.read("attention", 0)
    np.testing.assert_array_equal(store.read("values", 2), one_sequence(2)["values"])
    store.drop(names)
    assert [path.name for name in names for path in (Path(store.path) / name).iterdir()] == ["zarr.json"] * 2
    assert store.dropped == tuple(_plain(store.path).attrs["dropped"]) == names


def test_a_full_disk_is_relieved_by_dropping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, put = tensor_store(tmp_path / "s.zarr"), LocalStore.set

    async def full(self: LocalStore, key: str, value: Any) -> None:
        if any(list(Path(store.path, name).rglob("c*/1/0/0/0/0")) for name in ("attention", "values")):
            raise OSError(28, "No space left on device")
        await put(self, key, value)

    monkeypatch.setattr(LocalStore, "set", full)
    with pytest.raises(OSError, match="No space"):
        _plain_to_write(store.path).attrs["more"] = "bytes"
    store.drop(["attention", "values"])
    assert _plain(store.path).attrs["dropped"] == ["attention", "values"]


@pytest.mark.slow
@pytest.mark.one_case
@pytest.mark.parametrize("compression", ["none", "blosclz"])
def test_strided_views_are_written_within_a_bound_of_memory(tmp_path: Path, compression: Compression) -> None:
    """Sequence 1 of a batch of three, layer first; it has 64 chunks of 1 MiB."""
    sizes = {"sequence": 2, "query": 1, "layer": 64, "head": 2, "kv_head": 2, "key": 1024, "head_dim": 128}
    specs = [replace(spec, compression=compression) for spec in TENSORS]
    store = SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), specs, sizes, provenance())
    batch = np.random.default_rng(0).standard_normal((64, 2, 1024, 3, 128), dtype=np.float32)
    arrays = {spec.name: np.ones(spec.shape(sizes)[1:], spec.dtype) for spec in specs if spec.name != "finished"}
    arrays["values"] = batch[:, :, :, 1]
    _, peak = trace(lambda: store.write(1, arrays))
    assert peak < WRITING * 2**20
    np.testing.assert_array_equal(store.read("values", 1), batch[:, :, :, 1])


def test_a_document_of_other_attributes_is_damage(tmp_path: Path) -> None:
    store = tensor_store(tmp_path / "s.zarr")
    document = Path(store.path) / "zarr.json"
    document.write_text(document.read_text().replace('"layers"', '"layersx"'))
    said = r"s\.zarr is damaged \(zarr\.json: it has changed since it was written\); run .* --fresh"
    with pytest.raises(UserError, match=said):
        SequenceStore.open(store.path, TENSORS)


def test_another_fill_is_noticed_and_what_decides_nothing_is_named(tmp_path: Path) -> None:
    """Of what is not finished, other numbers would be read with another fill."""
    store = tensor_store(tmp_path / "s.zarr")
    store.verify()
    document = Path(store.path) / "attention" / "zarr.json"
    before = json.loads(document.read_text())
    document.write_text(json.dumps(before | {"fill_value": 1.0}))
    with pytest.raises(UserError, match=r"array 'attention' of .*, but .* is declared; .*--fresh"):
        SequenceStore.open(store.path, TENSORS)
    document.write_text(json.dumps(before | {"attributes": {"unit": "none"}}))
    with pytest.raises(UserError, match=r"zarr\.json of the array 'attention' of .* has changed since it was written"):
        SequenceStore.open(store.path, TENSORS).verify()


@pytest.mark.one_case
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_store_takes_no_more_than_said_and_nearly_as_much(tmp_path: Path, compression: Compression) -> None:
    """Of random bits, which do not compress; a disk hands out whole blocks to files and folders."""
    sizes = {"sequence": 1, "query": 4, "layer": 4, "head": 16, "kv_head": 8, "key": 512, "head_dim": 32}
    specs = tuple(replace(spec, compression=compression) for spec in TENSORS)
    store = SequenceStore.resume(LocalPlace(tmp_path / "s.zarr"), specs, sizes, {})
    shapes = {spec: spec.shape(sizes)[1:] for spec in specs if spec.name != "finished"}
    rng = np.random.default_rng(0)
    bits = {spec: rng.bytes(prod(shape) * np.dtype(spec.dtype).itemsize) for spec, shape in shapes.items()}
    store.write(0, {spec.name: np.frombuffer(bits[spec], spec.dtype).reshape(shapes[spec]) for spec in shapes})
    used = sum(max(4096, -(-found.stat().st_size // 4096) * 4096) for found in tmp_path.rglob("c/**/*"))
    assert 0.9 * estimate_sequence_bytes(specs, sizes) <= used <= estimate_sequence_bytes(specs, sizes)
