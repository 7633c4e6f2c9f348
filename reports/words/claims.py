"""Which of the paper's claims a model supports, in one sentence.

What does not belong here: the claims themselves (``sql/views/claims.sql``).
"""

from collections.abc import Sequence

from reports.words.numbers import Row, count


def claims(rows: Sequence[Row]) -> str:
    """How many claims are supported (``claims``)."""
    supported, contradicted, unknown = (
        sum(row["supported"] is verdict for row in rows) for verdict in (True, False, None)
    )
    left = f"; {unknown} cannot be judged" if unknown else ""
    return f"Of {count(len(rows), 'claim')} of the paper, this study supports {supported} and not {contradicted}{left}."
