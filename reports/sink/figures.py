"""Correlation of the sink's similarity to other value states with Recall (Figure 6)."""

from reports.figures import NOT_ANALYSED, NOTHING_SELECTED, Draft, Figure, Section, Source, has_values
from reports.findings import numbers
from reports.sink import charts
from reports.sink import findings as sink_findings


def build_section(source: Source) -> Section:
    """The sink effect."""
    return Section(
        "sink",
        "What the sink does",
        "If position 0, the sink, is selected, its value state v_0 is part of s_N. ρ_0, the sink’s "
        "similarity, is the mean cosine of v_0 with all other value states.",
        (_build_effect(source),),
    )


def _build_effect(source: Source) -> Figure:
    draft = Draft("sink-effect", "The sink’s similarity and Recall", source.ask_query("sink_effect"))
    if not has_values(draft.table, "correlation"):
        return draft.leave_empty(_explain_absence(source, draft.rows))
    peak = sink_findings.select_shown(draft.rows)["n"]
    heads = source.ask_query("sink_heads", n=peak).table
    seen = bool(sink_findings.select_sink_points(heads.to_pylist()))
    return draft.show(
        sink_findings.describe_sink_effect(draft.rows),
        "Line: Pearson correlation over all heads of Recall R(r_min, N) and ρ_0, each a mean over sequences. Depth "
        "moves both, so that random weights show it too: claims are judged within layers. Dots: the "
        "heads near the paper’s peak, N = 3, where it finds about 0.6 for Gemma-7B and Mistral-7B.",
        paper="Figure 6",
        marks="Band: 95 % interval over sequences. Hollow: heads that meet no rule, in the colour of the nearest kind.",
        charts=(charts.sink_effect(draft.table), *([charts.sink_heads(heads, n=peak)] if seen else [])),
    )


def _explain_absence(source: Source, rows: list[numbers.Row]) -> str:
    if not source.last_n:
        return NOTHING_SELECTED
    return sink_findings.explain_no_sink_effect(rows) if rows else NOT_ANALYSED
