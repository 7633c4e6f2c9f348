"""The one exception for mistakes a user can mend.

Every layer that meets such a mistake raises it; the command line prints its message as one line and exits with a
non-zero code.
"""


class UserError(Exception):
    """A mistake a user can mend: its message is one line that says what is wrong, where, and what to do."""


class DerivedDamageError(UserError):
    """Damage of what is computed again from what is there: of a metrics store, which ``run`` rebuilds by itself."""


class QuotingError(UserError):
    """One whose message quotes lines of SQL or YAML, with a caret under the place; its line breaks are kept."""
