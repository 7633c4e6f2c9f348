"""Text of any origin on a terminal: nothing in it acts, and nothing of it is lost."""

import logging
from pathlib import Path

import pytest

from extract.extraction import extract
from extract.settings import ExtractionSettings
from storage.errors import escape_unprintable
from storage.files.places import LocalPlace
from tests.extract.tiny import text, tiny_tokenizer, write_checkpoint

ACTING = "\x1b]0;title\x07\n\r\t\x7f\x9b2J\x85\u200b\u200d\u200e\u202a\u202e\u2028\u2029\u2066\u2069\u00ad\ufeff"
"""Escape sequences, line ends, delete, C1 controls, marks of direction, joiners and others without a shape."""


def test_what_acts_on_a_terminal_shows_as_escapes() -> None:
    shown = escape_unprintable(f"a{ACTING}b")
    assert shown.isprintable()
    assert shown.encode().decode("unicode_escape") == f"a{ACTING}b"
    assert escape_unprintable("Γειά, 世界 'two' \\") == "Γειά, 世界 'two' \\"
    assert escape_unprintable("one\ntwo\x1b", keep="\n") == "one\ntwo\\x1b"
    assert escape_unprintable("\ud800") == r"\ud800"
    assert escape_unprintable("no\u00a0break, wide\u3000space\u202f%") == "no\u00a0break, wide\u3000space\u202f%"


def test_names_in_the_log_are_harmless(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / f"a{ACTING}b"
    write_checkpoint(folder)
    tiny_tokenizer(bos=False).save_pretrained(folder)
    (folder / "book.txt").write_text(text(200), encoding="utf-8")
    asked = ExtractionSettings(model=str(folder), corpus=str(folder / "book.txt"), context_length=16, sequences=1)
    with caplog.at_level(logging.DEBUG, logger="extract"):
        for _ in range(2):  # a finished store says nothing again
            extract(asked, study="tiny", path=LocalPlace(tmp_path / "store"))
    (said,) = (record.getMessage() for record in caplog.records if record.name.startswith("extract"))
    assert said.startswith(f"sequences of '{escape_unprintable(str(folder))}' begin with no special token: ")
    assert said.isprintable()
