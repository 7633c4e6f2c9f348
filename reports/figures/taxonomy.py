"""Which kind each head is, why, how surely, and how well each kind separates (Figures 8 and 11)."""

from reports import listings
from reports.charts import taxonomy as charts
from reports.charts.taxonomy import SIGNATURE, VERDICT
from reports.figures.parts import NOT_ANALYSED, NOTHING_SELECTED, Figure, Section, Source, any_known, missing
from reports.figures.separation import FLOOR
from reports.findings import claims as claims_findings
from reports.findings import numbers
from reports.findings import taxonomy as taxonomy_findings

_KINDS = (
    "A Retriever’s last token contributes most and s_N keeps near its value state; a Mixer turns from the sink to the "
    "last token as N grows; in a Reset head the sink, or many keys, contribute while s_N keeps away from v_L. A head "
    "that meets no rule is Other."
)

CLAIMS = ("regimes_fit", "retrievers_first", "resets_early", "mixers_prevail_deep", "kinds_in_order")
"""The claims that the figure says something of."""


def section(source: Source) -> Section:
    """The taxonomy of heads."""
    return Section(
        "kinds",
        "Kinds of heads",
        f"The paper sorts heads by what s_N leans on. {_KINDS}",
        (depth(source), _curves(source), _plane(source), _sensitivity(source)),
    )


def depth(source: Source) -> Figure:
    """Kinds of heads by layer, and head by head (Figure 8)."""
    key, title, answer = "kinds-by-layer", "Kinds of heads over depth", source.of_query("taxonomy_of_heads")
    rows = answer.rows()
    if not rows:
        return missing(key, title, answer, NOT_ANALYSED)
    shares = source.of_query("taxonomy_by_layer").table
    return Figure(
        key,
        title,
        numbers.sentences(
            taxonomy_findings.kinds(rows),
            taxonomy_findings.depths(rows),
            claims_findings.said(source.of_study("claims").rows(), *CLAIMS),
        ),
        "Each head has exactly one label (shapes where cells are small); the nearest kind is beside each. In the paper "
        "(LLaMA-2-7B) Retrievers are seen most in the first two layers, Reset heads prevail in the next few, and "
        "Mixers from the lower middle on.",
        answer.table.select(VERDICT),
        answer,
        paper="Figure 8",
        marks=f"{taxonomy_findings.EXPLAINED}.",
        tab="Over depth",
        charts=(charts.kinds_by_layer(shares, answer.table), charts.kinds_map(answer.table)),
    )


def _plane(source: Source) -> Figure:
    key, title, answer = "kinds-plane", "Heads beside the thresholds", source.of_query("taxonomy_of_heads")
    thresholds = source.of_query("taxonomy_thresholds").table
    if not answer.table.num_rows or not thresholds.num_rows:
        return missing(key, title, answer, NOT_ANALYSED)
    if not any_known(answer.table, "cos_last_level"):
        return missing(
            key, title, answer, "No head attends to two keys with a last token whose value state has a norm."
        )
    return Figure(
        key,
        title,
        taxonomy_findings.planes(answer.rows()),
        "Dashed: as far as level and change of cos(s, v_L) go, Mixers lie right of the upright line and Reset heads "
        "below the level one. What the other conditions look at stands beside each mark; all of them, with what they "
        "are held against, are in the table head_conditions. Hollow marks: heads that meet no rule.",
        answer.table.select(SIGNATURE),
        answer,
        charts=(charts.kinds_plane(answer.table, thresholds),),
        broad=True,
        tab="Thresholds",
    )


def _sensitivity(source: Source) -> Figure:
    key, title = "kinds-sensitivity", "How much the kinds depend on the thresholds"
    answer = source.of_query("taxonomy_thresholds")
    if not any_known(answer.table, "heads"):
        return missing(key, title, answer, NOT_ANALYSED)
    rows = answer.rows()
    return Figure(
        key,
        title,
        taxonomy_findings.sensitivity(rows),
        "One threshold moves by 10 % and all others stay. The paper gives no thresholds; these are settings of one SQL "
        'macro, to be run with others: attention-geometry sql "FROM taxonomy(last_high := 0.6)".',
        answer.table,
        answer,
        listing=listings.sensitivity(rows),
        tab="Thresholds",
    )


def _curves(source: Source) -> Figure:
    key, title = "kinds-curves", "Precision and Recall by kind of head"
    answer = source.of_query("curves_by_label")
    if not answer.table.num_rows:
        return missing(key, title, answer, NOT_ANALYSED if source.last_n else NOTHING_SELECTED)
    return Figure(
        key,
        title,
        taxonomy_findings.kind_curves(answer.rows()),
        f"Each head is first averaged over sequences. {FLOOR} In the paper Retrievers have relatively higher Recall at "
        "large N but lower Precision, Mixers moderate Recall and Precision that falls slowly, and Reset heads a U in "
        "both.",
        answer.table,
        answer,
        paper="Figure 11",
        marks="Line: mean over the heads of a kind; band: the middle 80 % of them.",
        tab="Precision and Recall",
        charts=tuple(charts.kind_curves(answer.table, metric=metric) for metric in ("precision", "recall")),
    )
