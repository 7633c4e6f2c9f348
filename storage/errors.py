"""The one exception for mistakes that a user can fix.

Every layer that finds such a mistake raises it; the command line prints its message as one line and exits with a
non-zero code.
"""

import re
import unicodedata


class UserError(Exception):
    """A mistake that a user can fix; its message is one line that says what is wrong, where, and what to do.

    What it quotes may come from anywhere, and is printed by others too, such as Dagster: unprintable characters are
    escaped, except for line breaks.
    """

    def __str__(self) -> str:
        """The message."""
        return escape_unprintable(super().__str__(), keep="\n")


class DerivedDamageError(UserError):
    """Damage of data that can be recomputed from other stores: of metrics, which ``run`` measures again by itself."""


class QuotingError(UserError):
    """An error whose message quotes lines of SQL or YAML, with a caret under the position; its line breaks are kept."""


class NewerError(UserError):
    """Stored data were made by a newer version of the program; this version replaces them only if asked to."""


_VERSION = re.compile(r"(\d{1,6})(-[0-9a-f]+)?")


def refuse_newer(what: str, was: object, now: object, study: str) -> None:
    """Raise ``NewerError`` if a newer version of the program made what this one would replace.

    ``what`` is the subject of a sentence. ``was`` and ``now`` are versions: numbers, optionally followed by a hyphen
    and a digest; those of another form have no order, so they are not refused.
    """
    numbers = [int(match[1]) if (match := _VERSION.fullmatch(str(version))) else 0 for version in (was, now)]
    if numbers[0] > numbers[1] > 0:
        raise NewerError(
            f"{what} was made by a newer version of attention-geometry (version {was} of its code, here {now}); "
            f"upgrade, or replace it anyway: attention-geometry run {study} --fresh"
        )


def format_error(error: Exception) -> str:
    """Format an error as one line, which begins with the type of the error unless it is a ``UserError``."""
    said = " ".join(str(error).split())
    return said if isinstance(error, UserError) else f"{type(error).__name__}: {said}"


def escape_unprintable(text: str, *, keep: str = "") -> str:
    r"""Replace characters that act or are not seen by their code points, as ``\x1b`` and ``\u202e``.

    For untrusted text, such as tokens and the names of files, models and corpora, wherever it is shown: on a terminal,
    in messages and on pages. These are control characters, marks and overrides of direction, joiners and others without
    a shape, separators of lines, and codes without a character; spaces of any width stay, and characters of ``keep``.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep or unicodedata.category(character) == "Zs"
        else character.encode("unicode_escape").decode()
        for character in text
    )
