"""How the sink's similarity to other value states goes with Recall (Figure 6)."""

from reports.charts import sink as charts
from reports.figures.parts import NOT_ANALYSED, NOTHING_SELECTED, Figure, Section, Source, any_known, missing
from reports.findings import claims as claims_findings
from reports.findings import numbers
from reports.findings import sink as sink_findings

CLAIMS = ("sink_raises_recall", "sink_effect_peaks_early", "sink_widens_r_min")
"""The claims that the figure says something of, beside those of the summary."""


def section(source: Source) -> Section:
    """The sink effect."""
    return Section(
        "sink",
        "Effect of the sink",
        "Where the sink, position 0, is among the selected keys, its value state is part of the point that nearness is "
        "measured from. ρ₀ is the mean cosine between it and all other value states: does Recall depend on it?",
        (_effect(source),),
    )


def _effect(source: Source) -> Figure:
    key, title = "sink-effect", "Figure 6: the sink’s similarity and Recall"
    answer = source.of_query("sink_effect_by_n")
    rows = answer.rows()
    if not any_known(answer.table, "correlation"):
        return missing(key, title, answer, _why_not(source, rows))
    peak = sink_findings.sink_peak(rows)["n"]
    heads = source.of_query("explorer_heads", n=peak).table
    seen = bool(sink_findings.sink_points(heads.to_pylist()))
    return Figure(
        key,
        title,
        numbers.sentences(
            sink_findings.sink_effect(rows),
            sink_findings.sink_heads(heads.to_pylist(), peak) if seen else "",
            claims_findings.said(source.of_study("claims").rows(), *CLAIMS),
        ),
        "Left: Pearson correlation over heads of Recall R(rₘᵢₙ, N) and ρ₀, each a mean over sequences, with its 95 % "
        "bootstrap interval over sequences; the mark is the N farthest from 0. Right: the heads themselves at that N; "
        "those that share value states share ρ₀, and so say less than as many others. In the paper the correlation "
        "peaks near N = 3, at about 0.6 for Gemma-7B and Mistral-7B.",
        answer.table,
        answer,
        charts=(charts.sink_effect(answer.table), *([charts.sink_heads(heads, n=peak)] if seen else [])),
    )


def _why_not(source: Source, rows: list[numbers.Row]) -> str:
    if not source.last_n:
        return NOTHING_SELECTED
    return sink_findings.no_sink_effect(rows) if rows else NOT_ANALYSED
