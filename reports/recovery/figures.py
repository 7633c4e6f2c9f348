"""Planted parameters and what the fits recover, for studies whose tensors are drawn from the assumptions."""

import pyarrow as pa

from reports.figures import Figure, Section, Source, select_rows
from reports.recovery import charts, findings

WORST = 5
"""Number of rows of each parameter in the table of the figure; a large study would have thousands."""


def build_sections(source: Source) -> tuple[Section, ...]:
    """The one section of a study with planted parameters; none for others."""
    answer = source.ask_query("planted_recovery")
    rows = answer.rows()
    if not rows:
        return ()
    panels = [
        name for name in findings.PARAMETERS if any(row["parameter"] == name for row in findings.select_compared(rows))
    ]
    figure = Figure(
        "planted-recovery",
        "Planted and fitted parameters",
        findings.describe_recovery(rows),
        "Each dot is one head, or KV head; on the dashed line both agree. The table below has the "
        f"{WORST} heads with the largest error of each parameter; its SQL returns all of them. The tensors of this "
        "study are drawn from Assumptions 1 to 3 with the planted parameters, so any difference is an error of the "
        "fits. The paper has no such test.",
        answer,
        part=_select_worst(answer.table, panels),
        whole=answer.table,
        charts=tuple(charts.recovery(select_rows(answer.table, "parameter", name), parameter=name) for name in panels),
        listing=findings.tabulate_recovery(rows),
    )
    return (
        Section(
            "recovery",
            "What the fits recover",
            "This study is drawn, not measured: every parameter of its heads is known, and the fits above should "
            "recover it.",
            (figure,),
        ),
    )


def _select_worst(table: pa.Table, parameters: list[str]) -> pa.Table:
    """The rows of each parameter with the largest errors, largest first."""
    ordered = sorted(findings.select_compared(table.to_pylist()), key=lambda row: -abs(row["difference"]))
    rows = [row for name in parameters for row in [row for row in ordered if row["parameter"] == name][:WORST]]
    return pa.Table.from_pylist(rows, schema=table.schema)
