"""The three assumptions of the paper, and the weights on the sink."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import log10

import altair as alt

from reports import theme
from reports.assumptions import findings
from reports.elements import (
    HEAD,
    INTERVAL,
    THINNED,
    Y2Datum,
    colour_bars,
    colour_cells,
    count_axis,
    edges,
    head_grid,
    histogram,
    layer_axis,
    layer_chart,
    level,
    log_axis,
    log_ticks,
    points,
    rule_at,
    style_line,
    tooltips,
)
from reports.figures import Figure, Section, Source, only_row, select_rows
from reports.findings.numbers import Row, count, drop_nulls, find_span, join_sentences

VARIATIONS = {"cv_of_mean_norm": "of the mean norm over sequences", "cv_within_sequence": "within one sequence"}
"""Coefficients of variation, as the legend names them."""

SIMILARITIES = {"mean_cosine": "measured", "exponential": "exponential", "with_floor": "with a floor"}
"""Lines of a chart of similarity, as its legend names them."""

BOUNDARY = 0.09  # Mean absolute error of the exponential that the paper reports (Figure 3)


def _draw_bars(rows: Sequence[Row], x: alt.X, *named: alt.Tooltip) -> alt.Chart:
    """Bars from low to high, as high as the number of KV heads between."""
    tooltip = [*named, *tooltips(".3~g", low="From", high="to", number="KV heads")]
    y = alt.Y("number:Q", **count_axis("KV heads", max(row["number"] for row in rows)))
    bars: alt.Chart = alt.Chart().mark_rect(style="bar")
    return bars.encode(x=x, x2=alt.X2("high:Q"), y=y, y2=Y2Datum(0), tooltip=tooltip)


def draw_similarity(rows: Sequence[Row], *, title: str, domain: tuple[float, float]) -> alt.LayerChart:
    """Mean cosine of value states against distance, with both fits (Figure 3; one curve of ``similarity_curves``).

    ``domain`` spans the cosines of all charts side by side.
    """
    last = max(row["distance"] for row in rows)
    labels_of_x = log_ticks(last)
    x = log_axis("distance", "Distance k (tokens, log scale)", labels_of_x, domain=[1, max(last, 2)], padding=6)
    y = partial(alt.Y, title="Mean cosine", scale=alt.Scale(domain=list(domain)))
    base, labels = alt.Chart().encode(x=x), list(SIMILARITIES.values())
    lines = [
        style_line(base.mark_line().encode(y=y(f"{column}:Q")), labels, name) for column, name in SIMILARITIES.items()
    ]
    names = {column: name.capitalize() for column, name in SIMILARITIES.items()}
    tooltip = [*tooltips(",d", distance="Distance"), *tooltips(".3~f", **names)]
    dots = points(base.encode(y=y("mean_cosine:Q"), tooltip=tooltip), always=len(rows) == 1)
    description = f"Line chart of the mean cosine against distance. {findings.describe_similarity_curve(rows, title)}"
    return layer_chart(rows, title, description, *lines, dots)


def draw_attention(weights: Sequence[Row], fitted: Sequence[Row], *, query: int, fit: Row | None) -> alt.LayerChart:
    """Weight of one key against its position, sink and query marked (Figure 4; ``attention_over_heads``).

    ``fitted`` and ``fit`` are ``weights_fit_curve`` and ``assumption_weights_model``; without them no fit is drawn.
    """
    curve = {row["first_position"]: row["fitted"] for row in fitted}
    marked = label_positions(weights, {0: "sink, position 0", query: "the query itself"})
    rows = [{**row, "fitted": curve.get(row["first_position"])} for row in marked]
    x = alt.X("position:Q", scale=alt.Scale(nice=False, zero=False, padding=10)).title("Position of the key (token)")
    x = x.axis(format=",d", grid=False, tickCount=10, tickMinStep=1)
    means: list[float] = [row["mean"] for row in rows if row["mean"] > 0]
    spreads: list[float] = [row["p10"] for row in rows if row["p10"] > 0]
    # from the smallest spread, but at most a decade below the smallest mean, whose name half of it clears of the axis
    floor = min(max(min(spreads, default=1), min(means) / 10), min(means) / 2, 0.1)
    scale = alt.Scale(type="log", nice=False, clamp=True, domain=[floor, 1])
    axis = alt.Axis(format="~%", values=[10.0**-power for power in range(1 + int(-log10(floor)))])
    y = partial(alt.Y, title="Attention weight of one key (share, log scale)", scale=scale, axis=axis)
    fit_of = tooltips(".3~p", fitted="Fit")
    tooltip = [*POSITIONS, *list_spread(".3~p"), *fit_of, alt.Tooltip("heads:Q", title="Heads that see it")]
    line = alt.Chart().mark_line(style="fit").encode(x=x, y=y("fitted:Q")).transform_filter("datum.label == ''")
    description = (
        f"Line chart of the mean attention weight against position. {findings.describe_attention(rows, query)}"
    )
    return layer_chart(
        rows,
        "Attention weight by position",
        description,
        level(1 / (query + 1), "uniform"),
        *_draw_phases(fit),
        *draw_positions(rows, x, y, tooltip),
        *([line] if any(row["fitted"] is not None and not row["label"] for row in rows) else []),
    )


def _draw_phases(fit: Row | None) -> list[alt.LayerChart]:
    """Rules where the plateau ends and where the growth begins."""
    if fit is None or fit["t_1"] is None or fit["variant"] == "plateau":
        return []
    ends = {fit["t_1"]: "T₁", fit["t_2"]: "T₂"} if fit["t_1"] < fit["t_2"] else {fit["t_1"]: "T₁ = T₂"}
    return [
        rule_at("position", position, f"{name} = {position}", align="left" if name == "T₂" else "right")
        for position, name in ends.items()
    ]


def draw_sink_by_layer(sinks: Sequence[Row], profile: Sequence[Row]) -> alt.LayerChart:
    """Weight of every head on the sink, with the mean of each layer (``sink_by_head``, ``layer_profiles``)."""
    means = [row for row in profile if row["quantity"] == "sink_weight"]
    rows, x = [*drop_nulls(sinks, "sink_weight"), *means], layer_axis(sinks)
    axis, scale = alt.Axis(format="~%"), alt.Scale(zero=True)
    y = partial(alt.Y, title="Attention weight of position 0 (share)", scale=scale, axis=axis)
    heads = alt.Chart().transform_filter("isValid(datum.sink_weight)")
    ticks = heads.mark_tick(style="head", orient="horizontal", thickness=1.5).encode(x=x, y=y("sink_weight:Q"))
    of_layers = alt.Chart().transform_filter("isValid(datum.value)").encode(x=x)
    spans = of_layers.mark_rule(style="average-span").encode(y=y("value_low:Q"), y2=alt.Y2("value_high:Q"))
    points = of_layers.mark_point(style="average", filled=True).encode(y=y("value:Q"))
    return layer_chart(
        rows,
        "Attention on the sink by layer",
        f"Strip chart of the weight of position 0 in each head. {findings.describe_sink_by_layer(sinks)}",
        level(min(row["uniform_weight"] for row in drop_nulls(sinks, "sink_weight")), "uniform"),
        ticks.encode(tooltip=[*HEAD, *tooltips(".3~p", sink_weight="Weight of position 0")]),
        *([spans] if any(row["value_low"] is not None for row in means) else []),
        points.encode(tooltip=[HEAD[0], *tooltips(".3~p", value="Mean over its heads", **INTERVAL)]),
        height=max(theme.HEIGHT, head_grid(sinks)[1]),
    )


ASIDE = 9  # Pixels by which the upper of two names is above its mark, and the other one below
POSITIONS = tooltips(first_position="From position", last_position="to")  # Tooltip lines for a run of positions


def list_spread(number_format: str) -> list[alt.Tooltip]:
    """Tooltip lines for a mean and the quantiles around it."""
    return tooltips(number_format, mean="Mean over heads", p10="10 % of heads below", p90="10 % of heads above")


def label_positions(table: Sequence[Row], marked: dict[int, str]) -> list[Row]:
    """Rows of runs of positions with the middle ``position``, and a ``label`` where one is marked (else empty)."""
    return [
        {
            **row,
            "position": (row["first_position"] + row["last_position"]) / 2,
            "label": marked.get(row["first_position"], ""),
        }
        for row in table
    ]


def draw_positions(
    rows: Sequence[Row], x: alt.X, y: Callable[[str], alt.Y], tooltip: list[alt.Tooltip]
) -> list[alt.Chart]:
    """Draw mean and spread over heads by position, with the marked positions separate from the line."""
    plain, marked = ([row for row in rows if bool(row["label"]) is labelled] for labelled in (False, True))
    line = alt.Chart().encode(x=x).transform_filter("datum.label == ''")
    layers = [
        line.mark_area(style="band").encode(y=y("p10:Q"), y2=alt.Y2("p90:Q")),
        line.mark_line(style="mean").encode(y=y("mean:Q")),
        points(line.encode(y=y("mean:Q"), tooltip=tooltip), always=len(plain) == 1),
    ]
    highest = max((row["mean"] for row in marked), default=None)
    sides = [0 if len(marked) < 2 else -ASIDE if row["mean"] == highest else ASIDE for row in marked]
    marks = (mark for row, aside in zip(marked, sides, strict=True) for mark in _draw_marked(row, x, y, tooltip, aside))
    return [*(layers if plain else []), *marks]


def _draw_marked(
    row: Row, x: alt.X, y: Callable[[str], alt.Y], tooltip: list[alt.Tooltip], aside: int
) -> list[alt.Chart]:
    """Draw one position with its spread and its name inside the plotting area, ``aside`` pixels lower."""
    base = alt.Chart().encode(x=x).transform_filter(f"datum.first_position == {row['first_position']}")
    first = row["first_position"] == 0
    name = base.mark_text(style="accent-label", align="left" if first else "right", dx=11 if first else -11, dy=aside)
    return [
        base.mark_rule(style="accent-spread").encode(y=y("p10:Q"), y2=alt.Y2("p90:Q"), tooltip=tooltip),
        base.mark_point(style="accent", filled=True).encode(y=y("mean:Q"), tooltip=tooltip),
        name.encode(y=y("mean:Q"), text=alt.Text("label:N")),
    ]


def _build_value_norm(source: Source) -> Figure:
    draft = Figure("value-norm", "Norm of value states by position", source.ask_study("value_norm_over_heads"))
    heads = count(max(row["kv_heads"] for row in draft.rows), "KV head")
    told = findings.describe_value_norm(draft.rows)
    rows = label_positions(draft.rows, {0: "sink, position 0"})
    last = max(row["last_position"] for row in rows)
    scale = alt.Scale(type="symlog", nice=False, padding=10, domain=[0, max(last, 1)])
    x = alt.X("position:Q", scale=scale).title("Position (token, log scale from 0)")
    x = x.axis(format=",d", values=[0, *log_ticks(last)], grid=False, **THINNED)
    y = partial(alt.Y, title="Norm of the value state (model units)", scale=alt.Scale(zero=True))
    tooltip = [*POSITIONS, *list_spread(".3~g"), alt.Tooltip("kv_heads:Q", title="KV heads")]
    chart = layer_chart(
        rows,
        draft.title,
        f"Line chart of the mean norm of value states against position. {told}",
        *draw_positions(rows, x, y, tooltip),
    )
    return draft.show(
        told,
        "Each KV head is first averaged over sequences. In the paper norms are level over positions except for the "
        "sink’s, which is smaller.",
        paper="Figure 2, left",
        tab="1: norms",
        marks=f"Line: mean of {heads}; band: middle 80 % of them.",
        charts=(chart,),
    )


def _build_variation(source: Source) -> Figure:
    draft = Figure("norm-variation", "Variation of norms over KV heads", source.ask_study("norm_variation_by_head"))
    told = findings.describe_norm_variation(draft.rows)
    if not any(row["cv_of_mean_norm"] or row["cv_within_sequence"] for row in draft.rows):
        return draft.leave_empty(told)
    values = {column: [row[column] for row in drop_nulls(draft.rows, column)] for column in VARIATIONS}
    positive = {column: [value for value in some if value > 0] for column, some in values.items()}
    marks = edges([value for some in positive.values() for value in some] or [1.0], log=True)
    drawn = [
        {**bar, "measure": VARIATIONS[column]} for column, some in positive.items() for bar in histogram(some, marks)
    ]
    color = colour_bars("measure", list(VARIATIONS.values()), columns=1)
    scale = alt.Scale(type="log", nice=False, domain=[marks[0], marks[-1]], padding=6)
    x = alt.X("low:Q", scale=scale).title("Coefficient of variation (ratio, log scale)")
    bars = _draw_bars(drawn, x.axis(format=".4~g", grid=False, **THINNED), *tooltips(measure="Variation"))
    description = f"Histogram of both coefficients of variation over KV heads. {told}"
    chart = layer_chart(drawn, draft.title, description, bars.encode(color=color))
    return draft.show(
        told,
        "Coefficient of variation: standard deviation over mean, over all positions but the sink’s. "
        "The paper finds 0.02 to 0.03 and few above 0.05, which only the mean norm over sequences can show. Its "
        "variation shrinks with the square root of their number, so it reflects how many were averaged; only the "
        "variation within a sequence shows how stable norms are.",
        paper="Figure 2, right",
        tab="1: norms",
        charts=(chart,),
    )


def _build_errors(source: Source) -> Figure:
    draft = Figure(
        "similarity-errors", "Error of the exponential over KV heads", source.ask_study("similarity_fit_by_head")
    )
    told = findings.describe_similarity_errors(draft.rows)
    if not drop_nulls(draft.rows, "mae"):
        return draft.leave_empty(told)
    values = [row["mae"] for row in drop_nulls(draft.rows, "mae")]
    rows = histogram(values, edges([0.0, *values]))
    x = alt.X("low:Q").title("Mean absolute error of exp(−β k) (cosine)").axis(format=".4~g", grid=False)
    chart = layer_chart(
        rows,
        draft.title,
        f"Histogram of the error of the exponential fit over KV heads. {told}",
        _draw_bars(rows, x),
        rule_at("mae", BOUNDARY, "the paper’s mean"),
    )
    return draft.show(
        told,
        "Least-squares fits over distances of the mean cosine over sequences. In the paper the error is 0.09 on "
        "average, 0.05 to 0.10 in most heads and 0.20 to 0.25 in a few.",
        paper="Figure 3",
        tab="2: similarity",
        charts=(chart,),
    )


_WHICH = {"best": "Best fit", "median": "Median fit", "worst": "Worst fit"}


def _build_model(source: Source) -> Figure:
    draft = Figure("similarity-model", "Similarity against distance", source.ask_study("similarity_curves"))
    rows = [row for row in draft.rows if row["which"] == "model"]
    if not drop_nulls(rows, "mean_cosine"):
        return draft.leave_empty(findings.describe_similarity_errors(source.ask_study("similarity_fit_by_head").rows()))
    model = only_row(source.ask_study("assumption_similarity_model"))
    domain = find_span(draft.rows, SIMILARITIES)
    return draft.show(
        join_sentences(
            findings.describe_similarity_curve(rows, "All KV heads"), findings.describe_model_similarity(model)
        ),
        "Mean cosine over pairs at that distance, over sequences and over KV heads, with both fits; in brackets: "
        "95 % intervals over sequences. The fit with a floor, c + (1 − c) exp(−β k), is not from the paper. ρ_0 is the "
        "mean cosine of the sink’s value state with the others, which the paper assumes to be constant.",
        part=select_rows(draft.table, "which", "model"),
        paper="Figure 3",
        tab="2: similarity",
        charts=(draw_similarity(rows, title=draft.title, domain=domain),),
    )


def _build_curves(source: Source) -> Figure:
    draft = Figure("similarity-heads", "Similarity in single KV heads", source.ask_study("similarity_curves"))
    of_heads: dict[str, tuple[str, list[Row]]] = {}  # each KV head once
    for which, words in _WHICH.items():
        rows = [row for row in draft.rows if row["which"] == which]
        if drop_nulls(rows, "mean_cosine"):
            name = f"layer {rows[0]['layer']}, KV head {rows[0]['kv_head']}"
            of_heads.setdefault(name, (f"{words}: {name}", rows))
    if not of_heads:
        return draft.leave_empty(findings.describe_similarity_errors(source.ask_study("similarity_fit_by_head").rows()))
    domain, curves = find_span(draft.rows, SIMILARITIES), of_heads.values()
    return draft.show(
        join_sentences(*(findings.describe_similarity_curve(rows, title) for title, rows in curves)),
        "KV heads are ranked by the mean absolute error of the exponential; the axes are the same for all. In Section "
        "3.2 of the paper the exponential follows the curves of most heads.",
        part=select_rows(draft.table, "which", *_WHICH),
        paper="Figure 3",
        tab="2: similarity",
        charts=tuple(draw_similarity(rows, title=title, domain=domain) for title, rows in curves),
    )


FITTED = [
    *("layer", "head", "status", "variant"),
    *("p_sink", "p_base", "eta", "eta_growth", "omega", "t_1", "t_2", "r2_log"),
]
"""Columns of the fit by head that the table shows; the query also has errors and criteria."""

NO_SINK = "A sliding window hides position 0 from every head, so no head can attend to the sink."


def _build_attention(source: Source) -> Figure:
    draft = Figure("attention-by-position", "Attention weight by position", source.ask_query("attention_over_heads"))
    fit = only_row(source.ask_query("assumption_weights_model"))
    curve = source.ask_query("weights_fit_curve").rows()
    return draft.show(
        join_sentences(findings.describe_attention(draft.rows, source.query), findings.describe_phases(fit)),
        "Each head is first averaged over sequences; the fit is to the log of the weight. In the paper the weight of "
        "the sink is two orders of magnitude above that of other keys, the plateau extends to position 100, the "
        "oscillation to 800, and growth to the end.",
        paper="Figure 4",
        tab="3: weights",
        marks="Line: mean over heads; band: middle 80 % of them; dashed: fit.",
        charts=(draw_attention(draft.rows, curve, query=source.query, fit=fit),),
    )


def _build_variants(source: Source) -> Figure:
    draft = Figure("weight-variants", "Phases of the heads", source.ask_query("weights_fit_by_head"))
    told = findings.describe_weight_variants(draft.rows)
    counted = Counter(findings.VARIANTS.get(row["variant"], f"no fit: {row['status']}") for row in draft.rows)
    order = [*findings.VARIANTS.values(), *sorted(set(counted) - set(findings.VARIANTS.values()))]
    rows = [{"variant": name, "heads": counted[name]} for name in order]
    y = alt.Y("variant:N", sort=order, title="Variant").axis(labelLimit=240, grid=False)
    x = alt.X("heads:Q", **count_axis("Heads", max(counted.values())))
    tooltip = tooltips(variant="Variant", heads="Heads")
    bars = alt.Chart().mark_bar(style="bar").encode(x=x, y=y, tooltip=tooltip)
    description = f"Bar chart of the number of heads by variant of the fit. {told}"
    chart = layer_chart(rows, draft.title, description, bars, height=theme.HEIGHT)
    return draft.show(
        told,
        "Four variants of the phases are fitted to each head’s mean weight over sequences, and BIC chooses one. As "
        "printed in the paper, oscillation and growth share one η. The paper does not fit single heads.",
        part=draft.table.select(FITTED),
        tab="3: weights",
        charts=(chart,),
    )


def build_sinks(source: Source) -> Section:
    """What was found, and where in the model attention rests on the sink: with these the page begins."""
    return Section("summary", "Summary", "", (_build_sinks(source),))


def _build_sinks(source: Source) -> Figure:
    draft = Figure("sink-by-layer", "Attention on the sink by layer and head", source.ask_query("sink_by_head"))
    table = draft.table.select(["layer", "head", "sink_weight", "uniform_weight"])
    rows: list[Row] = table.to_pylist()
    if not drop_nulls(rows, "sink_weight"):
        return draft.leave_empty(NO_SINK)
    told = findings.describe_sink_by_layer(rows)
    base, height = head_grid(rows)
    cells = base.mark_rect().encode(
        color=colour_cells("sink_weight", height, "~%", scale=alt.Scale(zero=True)),
        tooltip=[*HEAD, *tooltips(".3~p", sink_weight="Weight of position 0")],
    )
    heat_map = layer_chart(
        drop_nulls(rows, "sink_weight"),
        "Attention on the sink of every head",
        f"Heat map of the weight of position 0, layers by heads. {told}",
        cells,
        height=height,
    )
    return draft.show(
        join_sentences(told, findings.describe_learned_sinks(source.ask_query("learned_sinks").rows())),
        "Heads are averaged over sequences. A large weight of position 0 need not mean a large contribution: a key "
        "contributes its weight times its value state.",
        part=table,
        marks="Strokes: one head each; dots: mean of the layer with its 95 % interval over sequences; dashed: an equal "
        "share for every key.",
        charts=(heat_map, draw_sink_by_layer(rows, source.ask_study("layer_profiles").rows())),
    )


def build_section(source: Source) -> Section:
    """Assumptions 1 to 3."""
    return Section(
        "assumptions",
        "Do the assumptions hold?",
        "1: the value states of a head have norm C, the sink’s λC. 2: the cosine of two value states decays with their "
        "distance k as exp(−β k); that of the sink’s with any other is ρ_0. 3: the weights over positions have four "
        "phases: the sink, a plateau up to T₁, an oscillation up to T₂, and growth towards the query.",
        tuple(
            build(source)
            for build in (
                *(_build_value_norm, _build_variation),
                *(_build_errors, _build_model, _build_curves),
                *(_build_attention, _build_variants),
            )
        ),
    )
