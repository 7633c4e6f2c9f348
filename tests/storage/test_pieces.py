"""Pieces of a long computation: what is kept, what comes back, and what is begun again."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.errors import UserError
from storage.files.pieces import Pieces, find_damaged_pieces

MADE_FROM = {"version": 1, "settings": {"draws": (1, 2)}}


def test_pieces_come_back_as_they_were(tmp_path: Path) -> None:
    numbers = [0.1, 1 / 3, math.nan, -math.inf, 5e-324]
    Pieces(tmp_path / "x.pieces", MADE_FROM).write("0-1", {"loss": numbers})
    again = Pieces(tmp_path / "x.pieces", MADE_FROM)
    assert again.list_names() == {"0-1"}
    found = again.read("0-1")["loss"]
    assert [one.hex() for one in found] == [one.hex() for one in numbers]


def test_pieces_of_something_else_are_removed(tmp_path: Path) -> None:
    Pieces(tmp_path / "x.pieces", MADE_FROM).write("0", 1)
    assert Pieces(tmp_path / "x.pieces", MADE_FROM | {"version": 2}).list_names() == set()
    assert Pieces(tmp_path / "x.pieces", MADE_FROM).list_names() == set()


def test_a_piece_that_was_being_written_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = Pieces(tmp_path / "x.pieces", MADE_FROM)
    pieces.write("0", 1)
    (pieces.folder / f"1.piece.{'0' * 32}.partial").write_text("{")
    assert Pieces(tmp_path / "x.pieces", MADE_FROM).list_names() == {"0"}
    assert sorted(path.name for path in pieces.folder.iterdir()) == ["0.piece", "made_from.piece"]
    monkeypatch.setattr(Path, "replace", lambda *_: pytest.fail("stopped"))
    with pytest.raises(pytest.fail.Exception):
        pieces.write("2", 2)
    assert pieces.list_names() == {"0"}
    pieces.remove()
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
    assert list(find_damaged_pieces(pieces.folder)) == []
    changed, other = pieces.folder / "0.piece", pieces.folder / "1.piece"
    changed.write_bytes(change(changed.read_bytes(), other.read_bytes()))
    assert list(find_damaged_pieces(pieces.folder)) == [(changed, "has changed since it was written")]
    with pytest.raises(UserError, match=r"0\.piece has changed since it was written; run again"):
        pieces.read("0")
    assert Pieces(tmp_path / "x.pieces", MADE_FROM).list_names() == {"1"}
    assert "0.piece has changed since it was written; computing it again" in caplog.text
    assert pieces.read("1") == {"loss": [0.25, 1.0]}
