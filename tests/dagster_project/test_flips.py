"""A campaign: bits flipped at random in every kind of file of a data root are harmless, or named with what mends them.

``tests.campaigns`` says how many.
"""

import hashlib
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache, partial
from pathlib import Path

import duckdb
import pytest

from dagster_project.records.opening import find_unreadable_records
from dagster_project.study.home import Home
from dagster_project.upkeep.doctor import verify
from storage.errors import UserError
from storage.files.parts import read_part
from storage.files.pieces import Pieces, find_damaged_pieces
from storage.files.places import LocalPlace
from storage.warehouse.connection import connect
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.campaigns import FLIPS
from tests.dagster_project.driver import attention_geometry

pytestmark = pytest.mark.slow  # seconds for every flip: everything is read


KINDS = {
    "chunks": "tensors/mine.zarr/*/c/**/*",
    "ledgers": "tensors/mine.zarr/finished/c/**/*",
    "documents": "tensors/mine.zarr/**/zarr.json",
    "measured": "metrics/mine.parts/*/*",
    "tables": "parts/mine/*/*.parquet",
    "footers": "parts/mine/*/*.parquet",
    "pieces": "parts/mine/*.pieces/*",
    "databases": "warehouse/*.duckdb",
    "records": "dagster/**/*.db",
    "settings": "dagster/*.yaml",
    "studies": "studies.yaml",
    "pages": "reports/*.html",
}
"""Patterns of files by kind; flips are spread evenly over the kinds, not over bytes, most of which are chunks."""


CHECKED = {"chunks", "ledgers", "documents", "measured", "tables", "footers", "pieces"}
"""Kinds of which nearly every bit is in a checksum or digest."""

OFTEN = ("tables",)
"""What tables and pages are made of; all other kinds are flipped in long tests."""


def flip(path: Path, draw: random.Random, kind: str) -> None:
    content = bytearray(path.read_bytes())
    first = len(content) - int.from_bytes(content[-8:-4], "little") - 8 if kind == "footers" else 0
    content[draw.randrange(first, len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def restore(home: Home, whole: Path, path: Path) -> None:
    shutil.copyfile(whole / path.relative_to(home.root), path)
    shutil.rmtree(home.dagster)
    shutil.copytree(whole / "dagster", home.dagster)


def plant_pieces(home: Home) -> None:
    """Leave what a run leaves that is killed while it measures effects of heads."""
    pieces = Pieces(home.parts("mine") / "head_ablation.pieces", {"version": 1})
    for sequence in range(4):
        pieces.write(f"{sequence}-0", {"plain_loss": 2.5 + sequence, "zero": [0.125, 1 / 3]})


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


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in OFTEN else pytest.mark.long) for kind in KINDS]
)
def test_flipped_bits_are_harmless_or_named(mine: Path, copied: Path, tmp_path: Path, kind: str) -> None:
    home, draw, named, whole = Home(copied), random.Random(FLIPS), 0, mine
    if kind == "pieces":
        plant_pieces(home)
        whole = shutil.copytree(copied, tmp_path / "whole")
    before = contents(home)
    files = [path for path in sorted(copied.glob(KINDS[kind])) if path.is_file() and path.stat().st_size]
    for _ in range(-(-FLIPS // len(KINDS))):
        path = draw.choice(files)
        flip(path, draw, kind)
        damaged = [found.damage for found in verify(home) if found.damage]
        after = contents(home)
        for name, digest in after.items():
            assert digest == before[name], f"{path}: {name} is another"
        lost = before.keys() - after.keys()
        assert damaged or not lost, f"{path}: {lost} cannot be read and nothing is named"
        for line in damaged:
            assert "attention-geometry " in line
        for command in (("studies",), ("refresh", "mine", "--dry-run"), ("doctor",)):
            done = attention_geometry(*command, home=copied)
            assert done.code in {0, 1}
            assert "Traceback" not in done.errors
        named += bool(damaged)
        restore(home, whole, path)
    assert contents(home) == before
    assert find_unreadable_records(home) is None
    assert named or kind not in CHECKED
