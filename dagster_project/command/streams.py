"""Standard input, output and error that are closed, full, or in an encoding without the paper's symbols."""

import codecs
import io
import os
import sys
import unicodedata
from typing import Any

SPELLED = "attention-geometry.spelled"
"""Name of the error handler for characters that an encoding lacks."""

OUTPUT = "standard output"
"""The file name in errors of writing to standard output."""

WORDS = {
    "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "∞": "inf", "−": "-", "–": "-", "—": "-", "…": "...", "·": "*", "×": "x",
    "‖": "||", "→": "->", "∈": "in", "∖": "\\", "∑": "sum", "√": "sqrt", "∪": "and", "±": "+-", "’": "'", "⟨": "<",
    "⟩": ">", "│": "|", "─": "-",
}  # fmt: skip
"""How symbols are written in ASCII."""


def prepare() -> None:
    """Open closed streams on ``/dev/null``, and spell characters that an encoding lacks in ASCII.

    So what is printed to a closed stream is lost, and no other file takes its number.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    codecs.register_error(SPELLED, _spell)
    sys.stdout = _open_text(_Output(1, "w", closefd=False), sys.stdout.encoding, lines=sys.stdout.isatty())
    sys.stderr = _open_text(io.FileIO(2, "w", closefd=False), sys.stderr.encoding, lines=True)


def _open_text(file: io.FileIO, encoding: str, *, lines: bool) -> io.TextIOWrapper:
    """Open a file as text; characters that the encoding lacks are spelled in ASCII; line- or block-buffered."""
    return io.TextIOWrapper(io.BufferedWriter(file), encoding=encoding, errors=SPELLED, line_buffering=lines)


class _Output(io.FileIO):
    """Standard output, whose errors can be distinguished from those of files."""

    def write(self, content: Any, /) -> int:
        """Write bytes; an error names ``OUTPUT`` as its file."""
        try:
            return super().write(content)
        except OSError as error:
            error.filename = OUTPUT
            raise


def discard_output() -> None:
    """Discard what is buffered for standard output, which cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _spell(error: UnicodeError) -> tuple[str, int]:
    """Spell characters that an encoding lacks: the replacement, and the position at which to continue."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(spell_in_ascii, error.object[error.start : error.end])), error.end


def spell_in_ascii(character: str) -> str:
    """Spell a character in ASCII: Greek letters by name, accented letters without accent, others by their code."""
    if character in WORDS:
        return WORDS[character]
    name = unicodedata.name(character, "")
    if name.startswith("GREEK"):
        letter = name.split(" WITH ")[0].split()[-1]
        return letter.lower() if "SMALL" in name else letter.capitalize()
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return plain or character.encode("unicode_escape").decode()
