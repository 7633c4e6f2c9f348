"""Planted parameters and what the fits recover, for studies whose tensors are drawn from the assumptions.

What does not belong here: fits of models (``reports.figures.values``, ``reports.figures.attention``).
"""

import pyarrow.compute as pc

from reports import charts, listings, words
from reports.figures.parts import Figure, Section, Source


def sections(source: Source) -> tuple[Section, ...]:
    """The one section of a study with planted parameters; none for others."""
    answer = source.of_study("planted_recovery")
    rows = answer.rows()
    if not rows:
        return ()
    panels = [name for name in words.PARAMETERS if any(row["parameter"] == name for row in words.compared(rows))]
    figure = Figure(
        "planted-recovery",
        "Parameters as planted and as fitted",
        words.recovered(rows),
        "Each dot is one head, or KV head; the dashed line is where both agree. The tensors of this study are drawn "
        "from Assumptions 1 to 3 with the planted parameters, so what the fits miss is their own error. The paper has "
        "no such test.",
        answer.table,
        answer,
        charts=tuple(
            charts.recovery(answer.table.filter(pc.equal(answer.table["parameter"], name)), parameter=name)
            for name in panels
        ),
        listing=listings.recovery(rows),
    )
    return (
        Section(
            "recovery",
            "What the fits recover",
            "This study is drawn, not measured: every parameter of its heads is known, and the fits above must find "
            "it.",
            (figure,),
        ),
    )
