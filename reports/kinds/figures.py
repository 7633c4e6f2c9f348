"""Kind of each head, its reasons and margin, and how well each kind separates (Figures 8 and 11)."""

from reports.chance.figures import FLOOR
from reports.figures import NOT_ANALYSED, NOTHING_SELECTED, Draft, Figure, Section, Source
from reports.findings import numbers
from reports.kinds import charts
from reports.kinds import findings as taxonomy_findings
from reports.kinds.head_map import build_map
from reports.kinds.patterns import build_patterns

_KINDS = (
    "In a Retriever the last token contributes most and s_N stays close to its value state v_L; in a Mixer s_N turns "
    "from the sink to the last token as N grows; in a Reset head the sink, or many keys, contribute while s_N stays "
    "away from v_L. Other heads meet no rule."
)


def build_section(source: Source) -> Section:
    """The taxonomy of heads."""
    return Section(
        "kinds",
        "Kinds of heads",
        _KINDS,
        (
            build_map(source),
            build_depth(source),
            _build_curves(source),
            build_patterns(source),
            _build_plane(source),
            _build_sensitivity(source),
        ),
    )


def build_depth(source: Source) -> Figure:
    """Kinds of heads by layer, and head by head (Figure 8)."""
    draft = Draft("kinds-by-layer", "Kinds of heads over depth", source.ask_query("head_taxonomy"))
    if not draft.rows:
        return draft.leave_empty(NOT_ANALYSED)
    shares = source.ask_query("taxonomy_by_layer").rows()
    return draft.show(
        numbers.join_sentences(
            taxonomy_findings.describe_kinds(draft.rows), taxonomy_findings.describe_depths(draft.rows)
        ),
        "The share that is left meets no rule. Each head has one label, which its tooltip gives. In the "
        "paper (LLaMA-2-7B) Retrievers occur mostly in the first two layers, Reset heads prevail in the next few, and "
        "Mixers from the lower middle on.",
        part=draft.table.select(charts.VERDICT),
        paper="Figure 8",
        tab="Over depth",
        marks="Map: heads that meet no rule are faint, in the colour of the nearest kind.",
        charts=(charts.kinds_by_layer(shares, draft.rows), charts.kinds_map(draft.rows)),
    )


def _build_plane(source: Source) -> Figure:
    draft = Draft("kinds-plane", "Heads and thresholds", source.ask_query("head_taxonomy"))
    thresholds = source.ask_query("taxonomy_thresholds").rows()
    if not draft.rows or not thresholds:
        return draft.leave_empty(NOT_ANALYSED)
    if not numbers.drop_nulls(draft.rows, "cos_last_level"):
        return draft.leave_empty("No head attends to two keys with a last token whose value state has a norm above 0.")
    return draft.show(
        taxonomy_findings.describe_planes(draft.rows),
        "Dashed: thresholds of change and level of cos(s, v_L) alone; Mixers lie right of the vertical line and Reset "
        "heads below the horizontal one. Tooltips give the quantities of the other conditions; the table "
        "head_conditions has all conditions with their thresholds. Hollow: heads that "
        "meet no rule, in the colour of the nearest kind.",
        part=draft.table.select([*charts.PLACE, *charts.SIGNATURE]),
        charts=(charts.kinds_plane(draft.rows, thresholds),),
        broad=True,
        tab="Thresholds",
    )


def _build_sensitivity(source: Source) -> Figure:
    draft = Draft(
        "kinds-sensitivity", "Dependence of the kinds on the thresholds", source.ask_query("taxonomy_thresholds")
    )
    if not numbers.drop_nulls(draft.rows, "heads"):
        return draft.leave_empty(NOT_ANALYSED)
    return draft.show(
        taxonomy_findings.describe_sensitivity(draft.rows),
        "One threshold changes by 10 % and all others are fixed. The paper gives no thresholds; these are parameters "
        'of one SQL macro, which can be run with others: attention-geometry sql "FROM taxonomy(last_high := 0.6)".',
        listing=taxonomy_findings.tabulate_sensitivity(draft.rows),
        tab="Thresholds",
    )


def _build_curves(source: Source) -> Figure:
    draft = Draft("kinds-curves", "Precision and Recall by kind of head", source.ask_query("curves_by_label"))
    if not draft.rows:
        return draft.leave_empty(NOT_ANALYSED if source.last_n else NOTHING_SELECTED)
    return draft.show(
        taxonomy_findings.describe_kind_curves(draft.rows, "precision", "recall"),
        f"Each head is first averaged over sequences. {FLOOR} In the paper Retrievers have relatively higher Recall at "
        "large N but lower Precision, Mixers moderate Recall and Precision that falls slowly, and Reset heads a "
        "U-shaped curve of both.",
        paper="Figure 11",
        marks="Line: mean over the heads of a kind; band: middle 80 % of them.",
        tab="Precision and Recall",
        charts=tuple(charts.kind_curves(draft.rows, metric=metric) for metric in ("precision", "recall")),
    )
