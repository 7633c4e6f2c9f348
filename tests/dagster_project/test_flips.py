"""A campaign: bits flipped at random in every kind of file of a data root are harmless, or named with what mends them.

``tests.campaigns`` says how many.
"""

import random
import shutil
from pathlib import Path

import pytest

from dagster_project.records.opening import find_unreadable_records
from dagster_project.study.home import Home
from dagster_project.upkeep.doctor import verify
from storage.files.pieces import Pieces
from tests.campaigns import FLIPS
from tests.dagster_project.damaging import contents
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
