"""Parts of tables: written atomically from one stream, in a folder named for what they were made from."""

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from storage.errors import UserError
from storage.files import parts
from storage.files.parts import (
    INPUTS,
    count_rows,
    is_whole,
    list_made,
    list_parts,
    locate_part,
    read_inputs,
    read_part,
    remove_others,
    write_parts,
)
from storage.files.places import LocalPlace
from storage.warehouse.rows import build_batch

MADE = {"step": "norms", "versions": {"norms": 1}, "settings": {"beta": [0.5, float("inf")]}}

LIBRARIES = {"scipy": "1.17.1"}


def batches(table: str = "norms") -> Iterator[tuple[str, pa.RecordBatch]]:
    for layer in range(3):
        yield table, build_batch({"layer": np.full(2, layer, np.int16), "c": np.array([1.5, np.nan])}, status="ok")


def write(folder: Path) -> Path:
    return write_parts(LocalPlace(folder), ["norms"], batches(), MADE, LIBRARIES).join("norms.parquet").path


def rows_of(path: Path) -> list[dict[str, object]]:
    return pa.Table.from_batches(read_part(LocalPlace(path))).to_pylist()


def test_rows_come_back_with_what_they_were_made_from(tmp_path: Path) -> None:
    path = write(tmp_path / "study")
    part = locate_part(LocalPlace(tmp_path / "study"), "norms", MADE)
    assert path == part.path
    made = read_inputs(part.parent)
    assert made is not None
    assert (made["inputs"], made["libraries"]) == (MADE, LIBRARIES)
    assert is_whole(part)
    assert count_rows(part) == 6
    assert rows_of(path) == pa.Table.from_batches(part for _, part in batches()).to_pylist()
    assert rows_of(path)[1] == {"layer": 0, "c": None, "status": "ok"}
    assert sorted(entry.name for entry in path.parent.iterdir()) == [INPUTS, "norms.parquet"]


def test_batches_of_several_tables_come_in_any_order(tmp_path: Path) -> None:
    """Each table has a schema of its own, and keeps the order of its own batches."""
    schemas, taken = {"a": np.int16, "b": np.float32, "none": np.int8}, dict.fromkeys("ab", 0)

    def stream() -> Iterator[tuple[str, pa.RecordBatch]]:
        for table in "aba":
            yield table, build_batch({table: np.full(2, taken[table], schemas[table])})
            taken[table] += 1

    write_parts(LocalPlace(tmp_path), schemas, stream(), MADE, LIBRARIES)
    paths = {table: locate_part(LocalPlace(tmp_path), table, MADE) for table in schemas}
    assert {table: count_rows(path) for table, path in paths.items()} == {"a": 4, "b": 2, "none": 0}
    for table, numbers in {"a": [0, 0, 1, 1], "b": [0, 0]}.items():
        found = pa.Table.from_batches(read_part(paths[table]))
        assert found.to_pydict() == {table: numbers}
        assert found.schema.field(table).type == pa.from_numpy_dtype(schemas[table])


def test_what_fails_half_way_leaves_the_parts_before(tmp_path: Path) -> None:
    folder, other = LocalPlace(tmp_path), MADE | {"settings": {}}
    before = write_parts(folder, ["norms", "others"], batches(), MADE, LIBRARIES)

    def failing() -> Iterator[tuple[str, pa.RecordBatch]]:
        yield from batches("others")
        yield next(batches())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_parts(folder, ["norms", "others"], failing(), other, LIBRARIES)
    with pytest.raises(KeyError, match="foreign"):
        write_parts(folder, ["norms", "others"], batches("foreign"), other, LIBRARIES)
    assert all(map(is_whole, list_parts(before)))
    assert {path.parent for path in tmp_path.rglob("*") if path.is_file()} == {before.path}


def test_parts_without_their_inputs_which_are_written_last_are_not_there(tmp_path: Path) -> None:
    path = write(tmp_path)
    (path.parent / INPUTS).unlink()
    assert not is_whole(LocalPlace(path))
    assert list_parts(LocalPlace(path.parent)) == []
    assert write(tmp_path) == path
    assert is_whole(LocalPlace(path))


def test_parts_of_other_inputs_are_removed(tmp_path: Path) -> None:
    """Not those of another step, whose name begins alike."""
    folder, other = LocalPlace(tmp_path), MADE | {"settings": {}}
    first, second = (write_parts(folder, ["norms"], batches(), inputs, LIBRARIES) for inputs in (MADE, other))
    longer = write_parts(folder, ["norms"], batches(), MADE | {"step": "norms-of"}, LIBRARIES)
    assert list_made(folder, "norms") == sorted([first, second], key=str)
    remove_others(folder, other)
    assert list_made(folder, "norms") == [second]
    assert longer.exists()


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and nothing more", "foreign"])
def test_what_is_no_part_is_not_whole(tmp_path: Path, content: bytes | str | None) -> None:
    path = write(tmp_path)
    path.unlink()
    if content == "foreign":
        pa.parquet.write_table(pa.table({"c": [1.0]}), path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    assert not is_whole(LocalPlace(path))
    with pytest.raises(UserError, match=r"norms\.parquet cannot be read .*; delete its folder and run the study again"):
        rows_of(path)


@pytest.mark.parametrize("what", ["another table", "other inputs"])
def test_a_part_in_the_place_of_another_is_noticed(tmp_path: Path, what: str) -> None:
    """Though its rows are the same."""
    path = write(tmp_path)
    changed = MADE | {"step": "other"}
    table = "others" if what == "another table" else "norms"
    other = write_parts(LocalPlace(tmp_path / "b"), [table], batches(table), changed, LIBRARIES)
    shutil.copy(other.join(f"{table}.parquet"), path)
    assert not is_whole(LocalPlace(path))
    with pytest.raises(UserError, match="it is not the file that was written here"):
        rows_of(path)
    path = write(tmp_path)
    (path.parent / INPUTS).write_text("{}")
    with pytest.raises(UserError, match=rf"its {INPUTS} is lost or has changed"):
        rows_of(path)


@pytest.mark.parametrize("end", [parts._END, 0])
def test_every_flipped_bit_of_a_part_is_noticed(tmp_path: Path, end: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of a column, say, is in the footer, of which Parquet has no checksum; of pages before it has one."""
    monkeypatch.setattr(parts, "_END", end)
    path = write(tmp_path)
    content, before = path.read_bytes(), rows_of(path)
    for bit in random.Random(1).sample(range(8 * len(content)), 500):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with suppress(UserError):
            assert rows_of(path) == before  # what no reader uses
            assert end == 0
