"""Parts of tables: written atomically from one stream, in a folder named for what they were made from."""

import random
import shutil
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from storage.errors import UserError
from storage.files.parts import (
    INPUTS,
    count_rows,
    is_whole,
    list_parts,
    locate_part,
    read_inputs,
    read_part,
    write_parts,
)
from storage.warehouse.rows import build_batch

MADE = {"step": "norms", "versions": {"norms": 1}, "settings": {"beta": [0.5, float("inf")]}}

LIBRARIES = {"scipy": "1.17.1"}


def batches(table: str = "norms") -> Iterator[tuple[str, pa.RecordBatch]]:
    for layer in range(3):
        yield table, build_batch({"layer": np.full(2, layer, np.int16), "c": np.array([1.5, np.nan])}, status="ok")


def write(folder: Path) -> Path:
    return write_parts(folder, ["norms"], batches(), MADE, LIBRARIES)["norms"]


def rows_of(path: Path) -> list[dict[str, object]]:
    return pa.Table.from_batches(read_part(path)).to_pylist()


def test_rows_come_back_with_what_they_were_made_from(tmp_path: Path) -> None:
    path = write(tmp_path / "study")
    assert path == locate_part(tmp_path / "study", "norms", MADE)
    made = read_inputs(path)
    assert made is not None
    assert (made["inputs"], made["libraries"]) == (MADE, LIBRARIES)
    assert is_whole(path)
    assert count_rows(path) == 6
    assert rows_of(path) == pa.Table.from_batches(part for _, part in batches()).to_pylist()
    assert rows_of(path)[1] == {"layer": 0, "c": None, "status": "ok"}
    assert sorted(entry.name for entry in path.parent.iterdir()) == [INPUTS, "norms.parquet"]


def test_a_table_without_rows(tmp_path: Path) -> None:
    path = write_parts(tmp_path, ["norms"], iter(()), MADE, LIBRARIES)["norms"]
    assert is_whole(path)
    assert (count_rows(path), sum(found.num_rows for found in read_part(path))) == (0, 0)


@pytest.mark.parametrize("order", sorted(set(permutations("aab"))))
def test_batches_of_several_tables_come_in_any_order(tmp_path: Path, order: tuple[str, ...]) -> None:
    """Each table has a schema of its own, and keeps the order of its own batches."""
    schemas, taken = {"a": np.int16, "b": np.float32, "none": np.int8}, dict.fromkeys("ab", 0)

    def stream() -> Iterator[tuple[str, pa.RecordBatch]]:
        for table in order:
            yield table, build_batch({table: np.full(2, taken[table], schemas[table])})
            taken[table] += 1

    paths = write_parts(tmp_path, schemas, stream(), MADE, LIBRARIES)
    assert {table: count_rows(path) for table, path in paths.items()} == {"a": 4, "b": 2, "none": 0}
    for table, numbers in {"a": [0, 0, 1, 1], "b": [0, 0]}.items():
        found = pa.Table.from_batches(read_part(paths[table]))
        assert found.to_pydict() == {table: numbers}
        assert found.schema.field(table).type == pa.from_numpy_dtype(schemas[table])


def test_many_small_batches_are_written_as_few_groups(tmp_path: Path) -> None:
    """One group for each batch took twice as long to write and to read."""
    names = ("first", "second")
    rows = [(name, build_batch({"n": np.arange(at, at + 1000)})) for at in range(0, 100_000, 1000) for name in names]
    for path in write_parts(tmp_path, names, rows, {}, {}).values():
        assert pyarrow.parquet.read_metadata(path).num_row_groups == 4
        assert np.array_equal(pa.Table.from_batches(read_part(path))["n"], np.arange(100_000))


def test_what_fails_half_way_leaves_the_parts_before(tmp_path: Path) -> None:
    before, other = write_parts(tmp_path, ["norms", "others"], batches(), MADE, LIBRARIES), MADE | {"step": "other"}

    def failing() -> Iterator[tuple[str, pa.RecordBatch]]:
        yield from batches("others")
        yield next(batches())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_parts(tmp_path, before, failing(), other, LIBRARIES)
    with pytest.raises(KeyError, match="foreign"):
        write_parts(tmp_path, before, batches("foreign"), other, LIBRARIES)
    assert {table: list_parts(tmp_path, table) for table in before} == {table: [path] for table, path in before.items()}
    assert all(map(is_whole, before.values()))
    assert not [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and path.parent not in {p.parent for p in before.values()}
    ]


def test_parts_of_other_inputs_are_replaced(tmp_path: Path) -> None:
    first = write(tmp_path)
    second = write_parts(tmp_path, ["norms"], batches(), MADE | {"step": "other"}, LIBRARIES)["norms"]
    assert (first.exists(), list_parts(tmp_path, "norms")) == (False, [second])


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and nothing more", "foreign"])
def test_what_is_no_part_is_not_whole(tmp_path: Path, content: bytes | str | None) -> None:
    path = write(tmp_path)
    path.unlink()
    if content == "foreign":
        pa.parquet.write_table(pa.table({"c": [1.0]}), path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    assert not is_whole(path)
    with pytest.raises(UserError, match=r"norms\.parquet cannot be read .*; delete it and run the study again"):
        rows_of(path)


@pytest.mark.parametrize("what", ["another table", "other inputs"])
def test_a_part_in_the_place_of_another_is_noticed(tmp_path: Path, what: str) -> None:
    path = write(tmp_path)
    if what == "another table":
        other = write_parts(tmp_path, ["others"], [*batches("others")][1:], MADE, LIBRARIES)["others"]
    else:
        rows = [*batches()][1:]
        other = write_parts(tmp_path / "b", ["norms"], rows, MADE | {"step": "other"}, LIBRARIES)["norms"]
    shutil.copy(other, path)
    assert not is_whole(path)
    with pytest.raises(UserError, match="it is not the file that was written here"):
        rows_of(path)
    path = write(tmp_path)
    (path.parent / INPUTS).write_text("{}")
    with pytest.raises(UserError, match=rf"its {INPUTS} is lost or has changed"):
        rows_of(path)


def test_every_flipped_bit_of_a_part_is_noticed(tmp_path: Path) -> None:
    """A name of a column, say, is in the footer, of which Parquet has no checksum."""
    path = write(tmp_path)
    content, before = path.read_bytes(), rows_of(path)
    for bit in random.Random(1).sample(range(8 * len(content)), 500):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="cannot be read"):
            assert rows_of(path) != before
