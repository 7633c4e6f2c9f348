"""The explorer: a chart in which the reader chooses a head."""

from reports.charts import explorer as charts
from reports.figures import separation
from reports.figures.parts import NOT_ANALYSED, NOTHING_SELECTED, Figure, Section, Source, make_empty_figure
from reports.findings import explorer as explorer_findings
from reports.findings import taxonomy as taxonomy_findings


def build_section(source: Source) -> Section:
    """Every head, one by one."""
    return Section(
        "explore",
        "Explore heads",
        "Choose a head by clicking on the map, or in the lists above it, to see its curves; the page’s address then "
        "links to it.",
        (_build_explorer(source),),
    )


def _build_explorer(source: Source) -> Figure:
    key, title, answer = "explorer", "Heads, one by one", source.ask_query("explorer_heads", n=source.n)
    curves = source.ask_query("explorer_curves").table
    rows = answer.rows()
    if not source.last_n:
        return make_empty_figure(key, title, answer, NOTHING_SELECTED)
    if not rows or not curves.num_rows:
        return make_empty_figure(key, title, answer, NOT_ANALYSED)
    return Figure(
        key,
        title,
        explorer_findings.describe_explorer(rows, source.n),
        "Means over sequences. Upper and lower: the printed bounds of Theorems 1 and 2, at the tightest κ, or at the "
        "middle one; scale-free: the lower bound that needs no κ. Norms and cosines, as in Figure 7 of the paper: "
        "norms of the sum s_N, also without the value state of the sink, v_0, or of the last token, v_L, and cosines "
        f"of s_N with both. {separation.FLOOR} The curves come from sql/queries/explorer_curves.sql.",
        answer.table,
        answer,
        marks=f"{taxonomy_findings.EXPLAINED}. Grey dashes: the floor N/n of Precision. The elbow is the N where "
        "the harmonic mean of Precision and Recall bends most; ρ_0 is the mean cosine of the sink’s value state with "
        "the others.",
        charts=(charts.explorer(answer.table, curves, n=source.n),),
        broad=True,
    )
