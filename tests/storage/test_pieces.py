"""Pieces of a long computation: what is kept, what comes back, and what is begun again."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.files.pieces import Pieces, read_pieces

MADE_FROM = {"version": 1, "settings": {"draws": (1, 2)}}


def test_pieces_come_back_as_they_were(tmp_path: Path) -> None:
    numbers = [0.1, 1 / 3, math.nan, -math.inf, 5e-324]
    Pieces(tmp_path / "x.pieces", MADE_FROM).write("0-1", {"loss": numbers})
    again = Pieces(tmp_path / "x.pieces", MADE_FROM)
    assert again.contents.keys() == {"0-1"}
    assert [one.hex() for one in again.contents["0-1"]["loss"]] == [one.hex() for one in numbers]


def test_pieces_of_something_else_are_removed(tmp_path: Path) -> None:
    Pieces(tmp_path / "x.pieces", MADE_FROM).write("0", 1)
    assert Pieces(tmp_path / "x.pieces", MADE_FROM | {"version": 2}).contents == {}
    assert Pieces(tmp_path / "x.pieces", MADE_FROM).contents == {}
    earlier = tmp_path / "y.pieces"
    earlier.mkdir()
    (earlier / "0.piece").write_text("of an earlier version")
    assert Pieces(earlier, MADE_FROM).contents == {}


def test_a_piece_that_was_being_written_does_not_count(tmp_path: Path) -> None:
    pieces = Pieces(tmp_path / "x.pieces", MADE_FROM)
    for name in ("0", "1"):
        pieces.write(name, 1)
    pieces.path.write_bytes(pieces.path.read_bytes()[:-3])
    assert not read_pieces(pieces.path)[1]
    again = Pieces(tmp_path / "x.pieces", MADE_FROM)
    again.write("2", 2)
    assert Pieces(tmp_path / "x.pieces", MADE_FROM).contents == {"0": 1, "2": 2}
    again.remove()
    assert list(tmp_path.iterdir()) == []


CHANGES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "another digit": lambda piece, _: piece.replace(b"0.25", b"0.26"),
    "cut": lambda piece, _: piece[:-3],
    "another piece": lambda _, other: other,
    "no UTF-8": lambda piece, _: piece[:-5] + bytes([piece[-5] ^ 0x80]) + piece[-4:],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_piece_that_has_changed_is_computed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Callable[[bytes, bytes], bytes]
) -> None:
    pieces = Pieces(tmp_path / "x.pieces", MADE_FROM)
    for name in ("0", "1"):
        pieces.write(name, {"loss": [0.25, float(name)]})
    assert not read_pieces(pieces.path)[1]
    first, changed, other = pieces.path.read_bytes().split(b"\n")[:-1]
    pieces.path.write_bytes(b"\n".join([first, change(changed, other), other, b""]))
    assert read_pieces(pieces.path)[1]
    assert Pieces(tmp_path / "x.pieces", MADE_FROM).contents == {"1": {"loss": [0.25, 1.0]}}
    assert "x.pieces has changed since it was written; computing again what was lost" in caplog.text
