"""What of the study ``mine`` can be read after damage, and doing what the line about a damage says."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache, partial
from pathlib import Path

import duckdb

from dagster_project.study.home import Home
from storage.errors import UserError
from storage.files.parts import read_part
from storage.files.pieces import find_damaged_pieces
from storage.files.places import LocalPlace
from storage.warehouse.connection import connect
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore


def contents(home: Home) -> dict[str, str]:
    """A digest of all that can be read of results, by what it is; what is refused in a line is left out."""
    found = {}
    for name, part in read_all(home):
        try:
            found[name] = hashlib.sha256(repr(part()).encode()).hexdigest()
        except (UserError, duckdb.Error):  # `sql` says the latter in a line, with the remedy
            continue
    return found


def read_all(home: Home) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every table, array and summary, with what reads it; no table of a database that is left out, with a warning."""
    with closing(connect(home.warehouse)) as warehouse:
        tables = warehouse.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL").fetchall()
        attached = warehouse.execute("SELECT path FROM duckdb_databases() WHERE path IS NOT NULL").fetchall()
        left_out = not any(str(path).endswith("mine.duckdb") for (path,) in attached)
        for (table,) in tables if not left_out else []:
            columns = f"FROM (SELECT hash(t) AS h FROM {table} t)"
            yield f"database {table}", lambda q=columns: warehouse.execute(f"SELECT count(*), sum(h) {q}").fetchall()
    place = home.tensors("mine")
    store = cache(partial(SequenceStore.open, place, TENSORS))
    for spec in TENSORS:
        yield f"{place} {spec.name}", lambda n=spec.name: store().read(n, slice(None)).tobytes()
    for path in sorted(home.parts("mine").glob("*.pieces/*")):
        yield str(path), partial(read_piece, path)
    for folder in (home.parts("mine"), Path(str(home.metrics("mine")))):
        for path in sorted(folder.glob("*/*.parquet")):
            yield str(path), lambda p=path: [batch.to_pydict() for batch in read_part(LocalPlace(p))]


def read_piece(path: Path) -> bytes:
    """A piece of an unfinished computation, as the next run takes it."""
    if path in dict(find_damaged_pieces(path.parent)):
        raise UserError(str(path))
    return path.read_bytes()
