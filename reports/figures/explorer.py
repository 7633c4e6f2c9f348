"""The explorer: one chart in which a reader chooses a head."""

from reports.charts import explorer as charts
from reports.figures.parts import NOT_ANALYSED, NOTHING_SELECTED, Figure, Section, Source, missing
from reports.findings import explorer as explorer_findings
from reports.findings import taxonomy as taxonomy_findings


def section(source: Source) -> Section:
    """Every head, one by one."""
    return Section(
        "explore",
        "Explore heads",
        "Choose a head by a click on the map, or in the two lists above it; its curves, its bounds and its geometry "
        "follow. The third list says what colours the map.",
        (_explorer(source),),
    )


def _explorer(source: Source) -> Figure:
    key, title, answer = "explorer", "Heads, one by one", source.of_query("explorer_heads", n=source.n)
    curves = source.of_query("explorer_curves").table
    rows = answer.rows()
    if not source.last_n:
        return missing(key, title, answer, NOTHING_SELECTED)
    if not rows or not curves.num_rows:
        return missing(key, title, answer, NOT_ANALYSED)
    return Figure(
        key,
        title,
        explorer_findings.explorer(rows, source.n),
        f"Means over sequences. {taxonomy_findings.EXPLAINED}. Upper and lower: the printed bounds of Theorems "
        "1 and 2, at the κ that serves best, or the middle one; scale-free: the lower one that needs no κ. Norms and "
        "cosines, as in Figure 7 of the paper: of the sum s_N, without the value state of the sink, v_0, or of the "
        "last token, v_L. The curves come from sql/queries/explorer_curves.sql.",
        answer.table,
        answer,
        charts=(charts.explorer(answer.table, curves, n=source.n),),
        broad=True,
    )
