"""The one exception for mistakes a user can mend.

Every layer that meets such a mistake raises it; the command line prints its message as one line and exits with a
non-zero code.
"""

import re


class UserError(Exception):
    """A mistake a user can mend: its message is one line that says what is wrong, where, and what to do."""


class DerivedDamageError(UserError):
    """Damage of what is computed again from what is there: of a metrics store, which ``run`` rebuilds by itself."""


class QuotingError(UserError):
    """One whose message quotes lines of SQL or YAML, with a caret under the place; its line breaks are kept."""


class NewerError(UserError):
    """What is stored was made by a newer version of the program than this one, which does not replace it unasked."""


_VERSION = re.compile(r"(\d{1,6})(-[0-9a-f]+)?")


def refuse_newer(what: str, was: object, now: object, study: str) -> None:
    """Refuse to replace what a newer version of the program made.

    Parameters
    ----------
    what
        What is stored, as the subject of a sentence.
    was, now
        The version that made it and this one's: numbers, perhaps followed by a hyphen and a digest. Others are not
        ordered, and so not refused.
    study
        Name of the study.

    Raises
    ------
    NewerError
        If it is newer.
    """
    numbers = [int(found[1]) if (found := _VERSION.fullmatch(str(version))) else 0 for version in (was, now)]
    if numbers[0] > numbers[1] > 0:
        msg = (
            f"{what} was made by a newer version of attention-geometry (version {was} of its code, here {now}); "
            f"upgrade, or replace it all the same: attention-geometry run {study} --fresh"
        )
        raise NewerError(msg)


def in_a_line(error: Exception) -> str:
    """An error in one line; one that is no user's mistake with its kind."""
    said = " ".join(str(error).split())
    return said if isinstance(error, UserError) else f"{type(error).__name__}: {said}"
