"""Tables on their way to the warehouse: written atomically from one stream, and known by what they were made from."""

import random
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from storage.errors import UserError
from storage.files.tables import count_rows, read_table, read_table_libraries, read_table_provenance, write_tables
from storage.warehouse.rows import build_batch

MADE = {"step": "norms", "versions": {"norms": 1}, "settings": {"beta": [0.5, float("inf")]}}


LIBRARIES = {"scipy": "1.17.1"}


def batches(table: str = "norms") -> Iterator[tuple[str, pa.RecordBatch]]:
    for layer in range(3):
        yield table, build_batch({"layer": np.full(2, layer, np.int16), "c": np.array([1.5, np.nan])}, status="ok")


def test_rows_come_back_with_what_they_were_made_from(tmp_path: Path) -> None:
    path = tmp_path / "study" / "norms.parquet"
    assert write_tables({"norms": path}, batches(), MADE, LIBRARIES) == {"norms": 6}
    assert (read_table_provenance(path), read_table_libraries(path)) == (MADE, LIBRARIES)
    assert count_rows(path) == 6
    found = pa.Table.from_batches(read_table(path)).to_pylist()
    assert found == pa.Table.from_batches(part for _, part in batches()).to_pylist()
    assert found[1] == {"layer": 0, "c": None, "status": "ok"}
    assert [entry.name for entry in path.parent.iterdir()] == ["norms.parquet"]


def test_a_table_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "norms.parquet"
    assert write_tables({"norms": path}, iter(()), MADE, LIBRARIES) == {"norms": 0}
    assert read_table_provenance(path) == MADE
    assert sum(found.num_rows for found in read_table(path)) == 0


@pytest.mark.parametrize("order", sorted(set(permutations("aab"))))
def test_batches_of_several_tables_come_in_any_order(tmp_path: Path, order: tuple[str, ...]) -> None:
    """Each table has a schema of its own, and keeps the order of its own batches."""
    schemas, taken = {"a": np.int16, "b": np.float32, "none": np.int8}, dict.fromkeys("ab", 0)
    paths = {table: tmp_path / f"{table}.parquet" for table in schemas}

    def stream() -> Iterator[tuple[str, pa.RecordBatch]]:
        for table in order:
            yield table, build_batch({table: np.full(2, taken[table], schemas[table])})
            taken[table] += 1

    assert write_tables(paths, stream(), MADE, LIBRARIES) == {"a": 4, "b": 2, "none": 0}
    for table, numbers in {"a": [0, 0, 1, 1], "b": [0, 0]}.items():
        found = pa.Table.from_batches(read_table(paths[table]))
        assert found.to_pydict() == {table: numbers}
        assert found.schema.field(table).type == pa.from_numpy_dtype(schemas[table])
    assert {read_table_provenance(path)["step"] for path in paths.values()} == {"norms"}


def test_many_small_batches_are_written_as_few_groups(tmp_path: Path) -> None:
    """One group for each batch took twice as long to write and to read."""
    paths = {name: tmp_path / f"{name}.parquet" for name in ("first", "second")}
    rows = [(name, build_batch({"n": np.arange(at, at + 1000)})) for at in range(0, 100_000, 1000) for name in paths]
    assert write_tables(paths, rows, {}, {}) == {"first": 100_000, "second": 100_000}
    for path in paths.values():
        assert pyarrow.parquet.read_metadata(path).num_row_groups == 4
        assert np.array_equal(pa.Table.from_batches(read_table(path))["n"], np.arange(100_000))


def test_rows_of_a_table_that_was_not_asked_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="other"):
        write_tables({"norms": tmp_path / "norms.parquet"}, batches("other"), MADE, LIBRARIES)
    assert list(tmp_path.iterdir()) == []


def test_what_fails_half_way_leaves_the_tables_before(tmp_path: Path) -> None:
    paths = {table: tmp_path / f"{table}.parquet" for table in ("norms", "others")}

    def failing() -> Iterator[tuple[str, pa.RecordBatch]]:
        yield from batches("others")
        yield next(batches())
        raise RuntimeError

    write_tables(paths, batches(), MADE, LIBRARIES)
    with pytest.raises(RuntimeError):
        write_tables(paths, failing(), MADE | {"step": "other"}, LIBRARIES)
    assert [read_table_provenance(path) for path in paths.values()] == [MADE, MADE]
    assert count_rows(paths["others"]) == 0
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name for path in paths.values()}


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and nothing more", "foreign", "list"])
def test_no_table_or_none_of_ours_was_made_from_nothing(tmp_path: Path, content: bytes | str | None) -> None:
    path = tmp_path / "norms.parquet"
    if content == "foreign":
        pa.parquet.write_table(pa.table({"c": [1.0]}), path)
    elif content == "list":
        write_tables({"norms": path}, batches(), [1, 2], LIBRARIES)
    elif content is not None:
        path.write_bytes(content)
    assert read_table_provenance(path) is None


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "norms.parquet"
    write_tables({"norms": path}, batches(), MADE, LIBRARIES)
    content = bytearray(path.read_bytes())
    content[30:40] = b"\xff" * 10
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"norms\.parquet cannot be read .*; delete it and run the study again"):
        list(read_table(path))
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        list(read_table(path))


def rows_of(path: Path) -> list[dict[str, object]]:
    return pa.Table.from_batches(read_table(path)).to_pylist()


def test_every_flipped_bit_of_a_table_is_noticed(tmp_path: Path) -> None:
    """A name of a column, say, is in the footer, of which Parquet has no checksum."""
    path = tmp_path / "norms.parquet"
    write_tables({"norms": path}, batches(), MADE, LIBRARIES)
    content, before, unnoticed = path.read_bytes(), rows_of(path), []
    assert content.count(b"digests") == 1
    for bit in random.Random(1).sample(range(8 * len(content)), 500):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert rows_of(path) == before
        except UserError:
            continue
        unnoticed.append(bit // 8 - content.index(b"digests"))
    assert not [place for place in unnoticed if not 0 <= place < len(b"digests")], "but that there are digests"


def test_a_name_of_a_column_that_changed_is_not_current(tmp_path: Path) -> None:
    path = tmp_path / "norms.parquet"
    write_tables({"norms": path}, batches(), MADE, LIBRARIES)
    path.write_bytes(path.read_bytes().replace(b"layer", b"mayer"))
    assert read_table_provenance(path) is None
    with pytest.raises(UserError, match=r"cannot be read \(its footer has changed since it was written\); delete it"):
        rows_of(path)


def test_a_table_of_an_earlier_version_has_no_digests(tmp_path: Path) -> None:
    path = tmp_path / "norms.parquet"
    pa.parquet.write_table(pa.Table.from_batches(part for _, part in batches()), path)
    assert rows_of(path) == pa.Table.from_batches(part for _, part in batches()).to_pylist()
