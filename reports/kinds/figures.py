"""Kind of each head, its reasons and margin, and how well each kind separates (Figures 8 and 11)."""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter

import altair as alt

from reports import theme
from reports.chance.figures import FLOOR
from reports.elements import (
    HEAD,
    INTERVAL,
    X2Value,
    XValue,
    head_grid,
    keep_columns,
    layer_axis,
    layer_chart,
    list_layers,
    n_axis,
    points,
    rule_at,
    tooltips,
)
from reports.figures import NOTHING_SELECTED, Figure, Section, Source
from reports.findings.listings import DASH, Listing, format_own_interval, tabulate
from reports.findings.numbers import NAMES, Row, count, drop_nulls, join_sentences, name_share, number
from reports.kinds import labels as kind_labels
from reports.kinds.head_map import build_map
from reports.kinds.labels import add_nearest, dots, fill_cells, label_colour, near_shape, segments, stack_shares

ROW = 24  # Height of the row of a label, in pixels


def draw_label_differences(rows: Sequence[Row], *, quantity: str) -> alt.LayerChart:
    """How heads of each label differ from all others in a quantity, with intervals (``measures_by_label``)."""
    chosen = [row for row in rows if row["quantity"] == quantity]
    labels = [label for label in PATTERN_LABELS if any(row["label"] == label for row in chosen)]
    name, base = QUANTITIES[quantity], alt.Chart().encode(y=alt.Y("label:N", sort=labels).title("Label"))
    zero = alt.Chart(alt.InlineData(values=[{"value": 0}])).mark_rule(style="reference").encode(x=alt.X("value:Q"))
    spans = base.mark_rule(style="average-span").encode(x=alt.X("value_low:Q"), x2=alt.X2("value_high:Q"))
    shown = tooltips(".3~g", value="Minus other heads", **INTERVAL)
    tooltip = [*tooltips(label="Label", heads="Heads"), *shown]
    marks = points(base, always=True).encode(x=alt.X("value:Q").title("Difference to other heads"), tooltip=tooltip)
    said = "; ".join(f"{row['label']} {format_own_interval(row, 'value')}" for row in chosen)
    return layer_chart(chosen, name, f"{name}, minus that of other heads: {said}.", zero, spans, marks, height=7 * ROW)


PATTERN_LABELS = ("sink", "self", "previous", "local", "duplicate", "induction", "diffuse")
"""Labels of ``head_labels``, in the order of charts and tables."""

QUANTITIES = {
    "recall": "Recall (mean over ln N)",
    "specificity": "Specificity (mean over ln N)",
    "auc": "AUC (mean over ln N)",
    "rho_0": "ρ₀",
    "effective_keys": "Effective keys",
    "loss": "Loss without the head (nats)",
}
"""What heads are compared in, by the names of ``measures_by_label``."""


def describe_hidden_sinks(row: Row) -> str:
    """Over how many queries weights on the sink are means where a window hides it (``queries_that_see_the_sink``)."""
    if not row["layers"]:
        return ""
    where = name_share(row["layers"] / row["all_layers"], row["all_layers"], "layer")
    seeing = " to ".join(dict.fromkeys(number(row[end]) for end in ("fewest", "most")))
    return (
        f"In {where} a window hides position 0: weights on the sink are means over the {seeing} of "
        f"{count(row['queries'], 'query', 'queries')} that see it."
    )


def describe_patterns(rows: Sequence[Row], hidden: Row) -> str:
    """Number of heads of each label, and those whose interval in Recall excludes 0 (``measures_by_label``)."""
    known = {row["label"]: row for row in rows if row["quantity"] == "recall"}
    recall = {label: known[label] for label in PATTERN_LABELS if label in known}
    numbers = ", ".join(f"{label} {row['heads']:,}" for label, row in recall.items())
    clear = [
        f"{label} {format_own_interval(row, 'value')}"
        for label, row in recall.items()
        if row["value_low"] is not None and row["value_low"] * row["value_high"] > 0
    ]
    return join_sentences(
        f"Heads by what they look at: {numbers}; a head may have several labels, or none.",
        f"The 95 % interval of the difference in Recall to all other heads excludes 0 for {'; '.join(clear)}."
        if clear
        else "The 95 % interval of the difference in Recall to all other heads excludes 0 for none.",
        describe_hidden_sinks(hidden),
    )


def tabulate_patterns(rows: Sequence[Row]) -> Listing:
    """How much more Recall heads of each label have, and how much more often they are of each kind, than all others.

    The rows are those of ``measures_by_label``.
    """
    row_of = {(row["label"], row["quantity"]): row for row in rows}

    def write(label: str, kind: str) -> str:
        row = row_of.get((label, kind.lower()))
        known = row is not None and any(row[end] for end in ("value", "value_low", "value_high"))
        return format_own_interval(row, "value") if row is not None and known else DASH

    return Listing(
        ("Label", "Heads: strongest (layer.head)", "Recall", *kind_labels.LABELS),
        tuple(
            (
                label,
                f"{row['heads']:,}: {row['strongest']}",
                *(write(label, name) for name in ("recall", *kind_labels.LABELS)),
            )
            for label in PATTERN_LABELS
            if (row := row_of.get((label, "recall")))
        ),
    )


def build_patterns(source: Source) -> Figure:
    """Heads that look at a known pattern, beside the others."""
    draft = Figure("kinds-patterns", "Kinds of heads and what they look at", source.ask_study("measures_by_label"))
    rows = draft.rows
    if not rows:
        why = "What heads look at was not measured, or no head looks at a known place as only some do."
        return draft.leave_empty(why)
    quantities = [name for name in QUANTITIES if any(row["quantity"] == name for row in rows)]
    return draft.show(
        describe_patterns(rows, source.ask_study("queries_that_see_the_sink").rows()[0]),
        "Labels are those of the view head_labels: at least 0.4 of the weight, over all queries, on the sink, the "
        "query itself, the token before, the last eight, earlier copies (duplicate) or what followed them (induction), "
        "these two on repeated tokens, the others in the text, above chance; diffuse: nearly uniform weights. Each "
        "number is the mean over the heads of a label minus that over all others, in the table also of the share of a "
        "kind (–: no head of it). The paper has no such labels.",
        marks="Dots: differences; lines: 95 % intervals over sequences.",
        tab="What heads look at",
        charts=tuple(draw_label_differences(rows, quantity=name) for name in quantities),
        listing=tabulate_patterns(rows),
    )


VERDICT = ["layer", "head", "label", "nearest", "single_key", "margin", "agreement"]
VERDICT += [f"{label.lower()}_score" for label in kind_labels.KINDS]
"""Columns of ``head_taxonomy`` with the kind of a head, its scores and margin."""

PLACE = ("layer", "head", "label", "nearest")
SIGNATURE = {
    "cos_last_level": "Cosine with the last token",
    "cos_last_change": "Change of that cosine",
    "cos_last_p05": "Reached over 95 % of ln N",
    "cos_sink_change": "Change of the cosine with the sink",
    "cos_sink_max": "Largest cosine with the sink",
    "sink_share": "Share of the sink",
    "last_share": "Share of the last token",
    "rest_share": "Share of the rest",
    "effective_contributors": "Effective contributors",
}
"""Columns of ``head_taxonomy``: the kind of a head, and the quantities of the rules as a tooltip names them."""

LETTERED_HEADS = 40  # Largest number of heads per row for which cells have room for a letter
SMALL = 12  # Area of the shape in a cell without room for a letter, in square pixels


def draw_kinds_map(heads: Sequence[Row]) -> alt.LayerChart:
    """The kind of every head, layers by heads (``head_taxonomy``)."""
    rows = add_nearest(keep_columns(heads, *VERDICT))
    base, height = head_grid(rows)
    lettered = len({row["head"] for row in rows}) <= LETTERED_HEADS
    scores = {f"{label.lower()}_score": f"Score as {label}" for label in kind_labels.KINDS}
    tooltip = tooltips(".3~f", label="Kind", nearest="Nearest kind", single_key="Single key", margin="Margin", **scores)
    tooltip += tooltips(".3~p", agreement="Sequences that agree")
    size = min(11, height // len(list_layers(rows)) - 2)
    sign = (
        base.mark_text(style="on-large", fontSize=size).encode(text=alt.Text("letter:N"))
        if lettered
        else base.mark_point(style="on-large", filled=True, size=SMALL)
        .encode(shape=near_shape())
        .transform_filter("datum.met")
    )
    return layer_chart(
        rows,
        "Kind of every head",
        f"Map of the kind of every head, layers by heads. {kind_labels.describe_kinds(heads)}",
        fill_cells(base, letters=lettered).encode(tooltip=[*HEAD, *tooltip]),
        sign,
        height=height,
    )


def _draw_borders(values: Mapping[str, float], left: float) -> list[alt.Chart | alt.LayerChart]:
    """Draw the thresholds of Mixers and of Reset heads on level and change of cos(s, v_L)."""
    reset = alt.Chart(alt.InlineData(values=[{"x": left, "y": values["last_weak"]}]))
    reset = reset.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))
    name = reset.mark_text(style="reference-label", align="left", baseline="top", dx=5, dy=5)
    return [
        reset.encode(x=XValue(0), x2=X2Value("width")).mark_rule(style="reference"),
        name.encode(text=alt.TextValue("Reset: below")),
        rule_at("x", values["last_rises"], "Mixer: right"),
    ]


def draw_kind_curves(curves: Sequence[Row], *, metric: str) -> alt.LayerChart:
    """Precision or Recall against N, mean and spread over the heads of each kind (Figure 11; ``curves_by_label``)."""
    rows = [row for row in curves if row["metric"] == metric]
    last = max(row["n"] for row in rows)
    y = partial(alt.Y, title=f"{NAMES[metric]} (ratio)", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart().encode(x=n_axis(last), color=label_colour())
    dashes = alt.Scale(domain=list(kind_labels.LABELS), range=list(kind_labels.DASHES.values()))
    dash = alt.StrokeDash("label:N", title=None, scale=dashes)
    shown = {"mean": f"Mean {NAMES[metric]}", "p10": "10 % of heads below", "p90": "10 % of heads above"}
    tooltip = tooltips(".3~f", label="Kind", n="N", **shown, heads="Heads")
    return layer_chart(
        rows,
        f"{NAMES[metric]} by kind of head",
        "Line chart against N on a log axis, one line for each kind. "
        f"{kind_labels.describe_kind_curves(curves, metric)}",
        base.mark_area().encode(y=y("p10:Q"), y2=alt.Y2("p90:Q")),
        base.mark_line().encode(y=y("mean:Q"), strokeDash=dash),
        points(base.encode(y=y("mean:Q"), tooltip=tooltip), always=last == 1),
    )


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
    draft = Figure("kinds-by-layer", "Kinds of heads over depth", source.ask_query("head_taxonomy"))
    shares = source.ask_query("taxonomy_by_layer").rows()
    depths = kind_labels.describe_depths(draft.rows)
    tooltip = [HEAD[0], *tooltips(".3~p", label="Kind", heads="Heads", share="Share of the layer")]
    x = layer_axis(draft.rows)
    bars = layer_chart(
        stack_shares([row for row in shares if row["heads"]], "layer"),
        "Share of each kind by layer",
        f"Stacked bars of the share of each kind of head by layer. {depths}",
        *segments(x, tooltip),
        height=max(theme.HEIGHT, head_grid(draft.rows)[1]),
    )
    return draft.show(
        join_sentences(kind_labels.describe_kinds(draft.rows), depths),
        "The share that is left meets no rule. Each head has one label, which its tooltip gives. In the "
        "paper (LLaMA-2-7B) Retrievers occur mostly in the first two layers, Reset heads prevail in the next few, and "
        "Mixers from the lower middle on.",
        part=draft.table.select(VERDICT),
        paper="Figure 8",
        tab="Over depth",
        marks="Map: heads that meet no rule are faint, in the colour of the nearest kind.",
        charts=(bars, draw_kinds_map(draft.rows)),
    )


def _build_plane(source: Source) -> Figure:
    draft = Figure("kinds-plane", "Heads and thresholds", source.ask_query("head_taxonomy"))
    if not drop_nulls(draft.rows, "cos_last_level"):
        return draft.leave_empty("No head attends to two keys with a last token whose value state has a norm above 0.")
    told = kind_labels.describe_planes(draft.rows)
    rows = add_nearest(drop_nulls(keep_columns(draft.rows, *PLACE, *SIGNATURE), "cos_last_level"))
    values = {row["threshold"]: row["value"] for row in source.ask_query("taxonomy_thresholds").rows()}
    changes = [*(row["cos_last_change"] for row in rows), 0, values["last_rises"]]
    levels = [*(row["cos_last_level"] for row in rows), values["last_weak"]]
    (left, right), (low, high) = ((min(found) - 0.08, max(found) + 0.08) for found in (changes, levels))
    x = partial(alt.X, title="Change of cos(s, v of the last token) over N", scale=alt.Scale(domain=[left, right]))
    y = partial(alt.Y, title="cos(s, v of the last token), mean over ln N", scale=alt.Scale(domain=[low, high]))
    tooltip = [*HEAD, *tooltips(".3~g", label="Kind", nearest="Nearest kind", **SIGNATURE)]
    chart = layer_chart(
        rows,
        draft.title,
        f"Dot plot of the level of cos(s, v_L) against its change, one mark for each head. {told}",
        *_draw_borders(values, left),
        *dots(rows, x("cos_last_change:Q"), y("cos_last_level:Q"), tooltip),
    )
    return draft.show(
        told,
        "Dashed: thresholds of change and level of cos(s, v_L) alone; Mixers lie right of the vertical line and Reset "
        "heads below the horizontal one. Tooltips give the quantities of the other conditions; the table "
        "head_conditions has all conditions with their thresholds. Hollow: heads that "
        "meet no rule, in the colour of the nearest kind.",
        part=draft.table.select([*PLACE, *SIGNATURE]),
        charts=(chart,),
        broad=True,
        tab="Thresholds",
    )


def _build_sensitivity(source: Source) -> Figure:
    draft = Figure(
        "kinds-sensitivity", "Dependence of the kinds on the thresholds", source.ask_query("taxonomy_thresholds")
    )
    return draft.show(
        kind_labels.describe_sensitivity(draft.rows),
        "One threshold changes by 10 % and all others are fixed. The paper gives no thresholds; these are parameters "
        'of one SQL macro, which can be run with others: attention-geometry sql "FROM taxonomy(last_high := 0.6)".',
        listing=tabulate(
            draft.rows,
            {
                "Threshold": itemgetter("threshold"),
                "What it decides": itemgetter("meaning"),
                "Value": lambda row: number(row["value"]),
                "Labels changed at −10\u00a0%": lambda row: f"{row['changed_below']:,}\u00a0of\u00a0{row['heads']:,}",
                "Labels changed at +10\u00a0%": lambda row: f"{row['changed_above']:,}\u00a0of\u00a0{row['heads']:,}",
            },
        ),
        tab="Thresholds",
    )


def _build_curves(source: Source) -> Figure:
    draft = Figure("kinds-curves", "Precision and Recall by kind of head", source.ask_query("curves_by_label"))
    if not draft.rows:
        return draft.leave_empty(NOTHING_SELECTED)
    return draft.show(
        kind_labels.describe_kind_curves(draft.rows, "precision", "recall"),
        f"Each head is first averaged over sequences. {FLOOR} In the paper Retrievers have relatively higher Recall at "
        "large N but lower Precision, Mixers moderate Recall and Precision that falls slowly, and Reset heads a "
        "U-shaped curve of both.",
        paper="Figure 11",
        marks="Line: mean over the heads of a kind; band: middle 80 % of them.",
        tab="Precision and Recall",
        charts=tuple(draw_kind_curves(draft.rows, metric=metric) for metric in ("precision", "recall")),
    )
