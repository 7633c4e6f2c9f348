"""Tables on their way to the warehouse: whole or not at all, and known by what they were made from."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from storage.errors import UserError
from storage.files.staging import beside, sweep
from storage.files.tables import made_by, made_from, read_summary, rows_of, write_summary
from storage.warehouse.rows import batch

MADE = {"step": "norms", "versions": {"norms": 1}, "settings": {"beta": [0.5, float("inf")]}}


LIBRARIES = {"scipy": "1.17.1"}


def batches() -> Iterator[pa.RecordBatch]:
    for layer in range(3):
        yield batch({"layer": np.full(2, layer, np.int16), "c": np.array([1.5, np.nan])}, status="ok")


def test_rows_come_back_with_what_they_were_made_from(tmp_path: Path) -> None:
    path = tmp_path / "study" / "norms.parquet"
    assert write_summary(path, batches(), MADE, LIBRARIES) == 6
    assert (made_from(path), made_by(path)) == (MADE, LIBRARIES)
    assert rows_of(path) == 6
    found = pa.Table.from_batches(read_summary(path)).to_pylist()
    assert found == pa.Table.from_batches(batches()).to_pylist()
    assert found[1] == {"layer": 0, "c": None, "status": "ok"}
    assert [entry.name for entry in path.parent.iterdir()] == ["norms.parquet"]


def test_a_table_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "norms.parquet"
    assert write_summary(path, iter(()), MADE, LIBRARIES) == 0
    assert made_from(path) == MADE
    assert sum(found.num_rows for found in read_summary(path)) == 0


def test_what_fails_half_way_leaves_the_table_before(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield next(batches())
        raise RuntimeError

    path = tmp_path / "norms.parquet"
    write_summary(path, batches(), MADE, LIBRARIES)
    with pytest.raises(RuntimeError):
        write_summary(path, failing(), MADE | {"step": "other"}, LIBRARIES)
    assert made_from(path) == MADE
    assert [entry.name for entry in tmp_path.iterdir()] == ["norms.parquet"]


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    path, other = tmp_path / "norms.parquet", tmp_path / "mine.partial"
    leftover, folder = beside(path), beside(path)
    leftover.touch()
    (folder / "within").mkdir(parents=True)
    other.touch()
    path.touch()
    sweep(path)
    assert sorted(tmp_path.iterdir()) == sorted([path, other])


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and nothing more", "foreign", "list"])
def test_no_table_or_none_of_ours_was_made_from_nothing(tmp_path: Path, content: bytes | str | None) -> None:
    path = tmp_path / "norms.parquet"
    if content == "foreign":
        pa.parquet.write_table(pa.table({"c": [1.0]}), path)
    elif content == "list":
        write_summary(path, batches(), [1, 2], LIBRARIES)
    elif content is not None:
        path.write_bytes(content)
    assert made_from(path) is None


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "norms.parquet"
    write_summary(path, batches(), MADE, LIBRARIES)
    content = bytearray(path.read_bytes())
    content[30:40] = b"\xff" * 10
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"norms\.parquet cannot be read .*; delete it and run the study again"):
        list(read_summary(path))
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        list(read_summary(path))
