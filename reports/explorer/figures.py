"""The explorer: a map of all heads, on which the reader chooses one, and the curves of that head.

One specification whose views share a selection. The choice filters rows before they are flattened, so that a model of a
thousand heads responds at once. Views have fixed widths, as concatenated views need them; a page may scale them.
"""

import json
from collections.abc import Sequence
from typing import Any

import altair as alt

from reports.chance.figures import FLOOR
from reports.elements import (
    DASHES,
    HEAD,
    XValue,
    YValue,
    express_number,
    head_grid,
    log_ticks,
    place_legend,
    shorten,
    tooltips,
    write_layer,
)
from reports.figures import NOTHING_SELECTED, Figure, Section, Source
from reports.findings.numbers import Row, count, drop_nulls, join_sentences, name_head
from reports.head_geometry.findings import COSINES, NORMS
from reports.kinds import labels as kind_labels
from reports.kinds.labels import OTHER, add_nearest, fill_cells
from reports.sink.figures import NO_RHO_0

MAP_WIDTH, CURVE_WIDTH, CURVE_HEIGHT = 380, 230, 120  # Sizes of the plotting areas, in pixels
WRITTEN_HEADS = 16  # Largest number of heads per row for which a map has values in its cells, and letters of full size
WRITTEN_HEIGHT = 14  # Least height of a row in pixels with which values are written in cells
SMALL_LETTER = 8  # Size of the letters of kinds if there are more heads per row, in pixels
GRADIENT, LEGEND_HEIGHT = 140, 34  # Length and height of the legend of numbers, in pixels
LABEL = "label"  # The quantity whose values are names, not numbers

SIGNED = ("rho_0", "delta_loss")  # Quantities of either sign, whose colours diverge from 0

_BOUNDED = {"": "mean", "_upper": "upper", "_lower": "lower", "_scale_free": "scale-free"}
_ERRORS = {"error_renormalised": "rescaled", "error_mean": "mean for the rest", "weight_left_out": "weight left out"}

LINES: dict[str, tuple[str, dict[str, str]]] = {
    "precision": ("Precision (ratio)", {f"precision{end}": name for end, name in _BOUNDED.items()}),
    "recall": ("Recall (ratio)", {f"recall{end}": name for end, name in _BOUNDED.items()}),
    "norms": ("Norm (model units)", NORMS),
    "cosines": ("Cosine", COSINES),
    "errors": ("Error (share of output)", _ERRORS),
}
"""The curves of one head: title of each chart's axis, and its columns, as its legend names them."""

_IS_SIGNED = "(" + " || ".join(f"quantity == '{name}'" for name in SIGNED) + ")"
_IS_LABEL = f"quantity == '{LABEL}'"
_LOOKS = "isValid(datum.patterns) ? datum.patterns : '–'"
_SHOWN = "!isValid(datum[quantity]) ? ': –' : ': ' + format(datum[quantity], '.3~g')"
_IS_BOUND = "test(/_(upper|lower|scale_free)$/, datum.column)"


def draw_explorer(heads: Sequence[Row], curves: Sequence[Row], *, n: int, first: Row) -> alt.ConcatChart:
    """A map of all heads, and the curves of the head that is chosen by a click or in two inputs.

    Rows are ``explorer_heads``, at ``n``, and ``explorer_curves``, whose lists are over n; ``first`` is chosen first.
    Numbers are embedded with three significant digits, and the lists of each head as one row.
    """
    rows = add_nearest(_join_rows(heads, curves))
    text = json.dumps(rows, allow_nan=False, separators=(",", ":"))  # Altair would copy every number at each step
    inputs: Any = {  # Vega-Lite takes one input per field, which Altair's types leave out
        axis: alt.binding_select(options=sorted({row[axis] for row in rows}), name=axis.capitalize())
        for axis in ("layer", "head")
    }
    chosen = alt.selection_point(  # a click outside the cells changes nothing
        "chosen",
        fields=["head", "layer"],  # inputs are shown in reverse order
        bind=inputs,
        on="rect:click",
        clear=False,
        value=[{axis: first[axis] for axis in inputs}],
    )
    curves_of_one = alt.concat(
        *(_draw_curves(rows, name, chosen) for name in LINES),
        columns=2,
        spacing=12,
        resolve=alt.Resolve(scale={"color": "independent", "strokeDash": "independent"}),
    )
    overview = alt.vconcat(_draw_map(rows, chosen, n), _describe_head(chosen), spacing=16)
    description = (
        f"A map of {count(len(rows), 'head')}, layers by heads, beside line charts of the head that is chosen, "
        "against N: Precision and Recall with their bounds, norms of the sum, cosines of the sum, errors of its output."
    )
    return alt.concat(  # in one step: Altair copies all parts several times in each
        overview,
        curves_of_one,
        columns=2,
        spacing=20,
        data=alt.InlineData(values=text, format=alt.JsonDataFormat(type="json")),
        title=alt.Title("Heads, one by one", offset=28),
        description=description,
    )


def list_quantities(heads: Sequence[Row], n: int) -> dict[str, str]:
    """List the columns by which the map can be coloured, those with any value, as the dropdown names them."""
    named = {
        "auc_at_n": f"AUC at N = {n}",
        "recall_at_n": f"Recall at N = {n}",
        "precision_at_n": f"Precision at N = {n}",
        "sink_weight": "Attention on the sink",
        LABEL: "Kind of head",
        "elbow_n": "Elbow (N)",
        "rho_0": "ρ₀, mean cosine with the sink",
        "effective_share": "Effective keys over all",
        "distance_at_n": f"Distance from the rest at N = {n}",
        "last_nearer_n": "Nearer than random until N",
        "spectral_norm": "Sensitivity at T = 1",
        "delta_loss": "Loss increase without the head",
    }
    return {name: title for name, title in named.items() if any(row.get(name) is not None for row in heads)}


def _join_rows(heads: Sequence[Row], curves: Sequence[Row]) -> list[Row]:
    """One row per head: its values, those of the map's N under names of their own, and the lists of its curves."""
    of_head = {(row["layer"], row["head"]): row for row in curves}
    at_n = ("precision", "recall", "auc", "distance")
    rows = []
    for row in heads:
        values = {f"{name}_at_n" if name in at_n else name: value for name, value in row.items()}
        lists = of_head.get((row["layer"], row["head"]), {})
        rows.append({name: shorten(value, 3) for name, value in (values | lists).items()})
    return rows


def _draw_map(rows: Sequence[Row], chosen: alt.Parameter, n: int) -> alt.LayerChart:
    """Draw layers by heads: two layers of cells, one visible at a time, letters or values, and the choice."""
    base, height = head_grid(rows)
    named = list_quantities(rows, n)
    bind = alt.binding_select(options=list(named), labels=list(named.values()), name="Colour")
    counted = [name for name in named if name != LABEL]
    cells = [_draw_kinds(base), *(_draw_numbers(base, rows, counted) if counted else [])]
    is_roomy = len({row["head"] for row in rows}) <= WRITTEN_HEADS
    is_written = counted and is_roomy and height >= WRITTEN_HEIGHT * len({row["layer"] for row in rows})
    size = alt.Undefined if is_roomy else SMALL_LETTER
    letter = base.mark_text(style="on-large", aria=False, fontSize=size).encode(text=alt.Text("letter:N"))
    letters = [letter.transform_filter(_IS_LABEL), *(_write_values(base) if is_written else [])]
    frames = [base.mark_rect(style=style, filled=False, aria=False) for style in ("chosen", "chosen-inside")]
    frames = [frame.transform_filter(chosen) for frame in frames]
    touched = (
        base.mark_rect(opacity=0)
        .encode(tooltip=[*HEAD, *tooltips(label="Kind", looks="Looks at", shown="Colour")])  # few: the map is in view
        .transform_calculate(looks=_LOOKS, shown=f"{_IS_LABEL} ? datum.label : {named}[quantity] + ({_SHOWN})")
        .properties(name="cells")
        .add_params(chosen, alt.param("quantity", value=next(iter(named)), bind=bind))
    )
    layers = [*cells, *letters, *frames, _name_legend(named), touched]
    resolve = alt.Resolve(scale={"color": "independent"})
    return alt.LayerChart(layer=list(map(write_layer, layers)), resolve=resolve, width=MAP_WIDTH, height=height)


def _draw_kinds(base: alt.Chart) -> alt.Chart:
    """Cells coloured by the kind of head, while the dropdown asks for that."""
    cells, seen = fill_cells(base, letters=True), alt.expr(f"{_IS_LABEL} ? 1 : 0")
    for name, value in (place_legend(24, seen) | {"symbolOpacity": seen}).items():
        cells.encoding.color["legend"][name] = value
    kinds: alt.Chart = cells.transform_filter(_IS_LABEL)
    return kinds


def _draw_numbers(base: alt.Chart, rows: Sequence[Row], names: Sequence[str]) -> list[alt.Chart]:
    """Cells coloured by a number; while the dropdown names none, the first one is present but invisible."""
    unsigned = [name for name in names if name not in SIGNED]
    drawn = [_draw_scale(base, f"!({_IS_SIGNED} || {_IS_LABEL})", unsigned, alt.Scale(range="heatmap"))]
    if signed := [name for name in names if name in SIGNED]:
        reach = {name: max(abs(row[name] or 0) for row in rows) or 1 for name in signed}
        ends = [alt.expr(f"{sign}({reach}[quantity] || 1)") for sign in ("-", "")]
        drawn.append(_draw_scale(base, _IS_SIGNED, signed, alt.Scale(domain=ends, range="diverging")))
    return drawn


def _draw_scale(base: alt.Chart, condition: str, names: Sequence[str], scale: alt.Scale) -> alt.Chart:
    """Cells of the quantities of one scale, with its legend, while the dropdown names one of them."""
    seen = alt.expr(f"{condition} ? 1 : 0")
    legend = alt.Legend(
        **place_legend(LEGEND_HEIGHT, seen), format=".2~g", tickCount=2, gradientLength=GRADIENT, gradientOpacity=seen
    )
    cells = _compute_value(
        base.mark_rect(opacity=seen, aria=False), f"{condition} ? datum[quantity] : datum['{names[0]}']"
    )
    return cells.encode(color=alt.Color("value:Q", title=None, legend=legend, scale=scale))


def _name_legend(named: dict[str, str]) -> alt.Chart:
    """What colours mean, beside the legend of numbers: a picture has no dropdown."""
    text = alt.expr(f"{_IS_LABEL} ? '' : {named}[quantity]")
    mark = alt.Chart(alt.InlineData(values=[{}])).mark_text(text=text, style="chosen-facts", align="left", aria=False)
    named_beside: alt.Chart = mark.encode(x=XValue(GRADIENT + 10), y=YValue(-LEGEND_HEIGHT + 6))
    return named_beside


def _compute_value(chart: alt.Chart, expression: str) -> alt.Chart:
    return chart.transform_calculate(value=expression).transform_filter("isValid(datum.value)")


def _write_values(base: alt.Chart) -> list[alt.Chart]:
    """The numbers in the cells, in a colour that stands out from the cell's."""
    marks = []
    for style, side in (("on-small", "<="), ("on-large", ">")):
        text = _compute_value(base.mark_text(style=style, aria=False), f"{_IS_LABEL} ? null : datum[quantity]")
        text = text.transform_joinaggregate(low="min(value)", high="max(value)")
        text = text.transform_filter(f"datum.value {side} (datum.low + datum.high) / 2")
        marks.append(text.encode(text=alt.Text("value:Q", format=".2~f")))
    return marks


def _describe_head(chosen: alt.Parameter) -> alt.LayerChart:
    name = "'Layer ' + datum.layer + ', head ' + datum.head + (isValid(datum.label) ? ': ' + datum.label : '')"
    is_other = f"datum.label === '{kind_labels.OTHER}' && isValid(datum.nearest)"
    nearest = f"({is_other} ? 'nearest to ' + datum.nearest + (isValid(datum.patterns) ? ' · ' : '') : '')"
    looks = f"{nearest} + (isValid(datum.patterns) ? 'looks at: ' + datum.patterns : '')"
    agreeing = "round(datum.agreement * datum.sequences) + ' of ' + datum.sequences"
    sequences = f"{agreeing} + (datum.sequences === 1 ? ' sequence' : ' sequences')"
    parts = (
        "(isValid(datum.margin) ? 'margin ' + format(datum.margin, '.3~g') : 'no kind')",
        f"(isValid(datum.agreement) ? {sequences} : 'no sequences')",
        "(isValid(datum.elbow_n) ? 'elbow N = ' + datum.elbow_n : 'no elbow')",
    )
    base = alt.Chart(height=48, width=MAP_WIDTH).transform_filter(chosen)
    base = base.transform_calculate(name=name, facts=" + ' · ' + ".join(parts), looks=looks)
    lines = [
        base.mark_text(style="chosen-name", align="left").encode(x=XValue(0), y=YValue(6), text=alt.Text("name:N")),
        *(
            base.mark_text(style="chosen-facts", align="left").encode(
                x=XValue(0), y=YValue(y), text=alt.Text(f"{text}:N")
            )
            for y, text in ((24, "facts"), (42, "looks"))
        ),
    ]
    return alt.LayerChart(layer=list(map(write_layer, lines)))


def _draw_curves(rows: Sequence[Row], name: str, chosen: alt.Parameter) -> alt.LayerChart:
    """Lines of the chosen head against N, in the colours and dashes of their names; NULL leaves a gap."""
    y_title, lines = LINES[name]
    titles = list(lines.values())
    last = max(row["n"][-1] for row in rows if row.get("n"))
    ticks = log_ticks(last)
    ticks = ticks if len(ticks) <= 6 else ticks[::3]  # the powers of ten, on a narrow axis
    x_scale = alt.Scale(type="log", nice=False, domain=[1, max(last, 2)], padding=4)
    y_scale = alt.Scale(domain=[0, 1]) if name in {"precision", "recall"} else alt.Scale(zero=True)
    if name == "cosines":  # one scale for all heads, so that they can be compared
        values = [value for row in rows for column in lines for value in row.get(column) or [] if value is not None]
        y_scale = alt.Scale(domain=[min([*values, 0.0]), max([*values, 0.0]) if any(values) else 1.0])
    legend = alt.Legend(orient="top", columns=2, symbolSize=250, labelFontSize=11, offset=4)
    base = alt.Chart().transform_filter(chosen).transform_flatten(["n", *lines])
    base = base.transform_fold(list(lines), as_=["column", "value"])
    texts = {f"{column} as text": express_number(column, ".3~g") for column in lines}
    base = base.transform_calculate(line=f"{lines}[datum.column]", bound=_IS_BOUND, **texts).encode(
        x=alt.X("n:Q", scale=x_scale).title("N").axis(format=",d", values=ticks, grid=False),
        y=alt.Y("value:Q", title=y_title, scale=y_scale),
        color=alt.Color("line:N", title=None, scale=alt.Scale(domain=titles), legend=legend),
        tooltip=[
            *tooltips(n="N"),
            *(alt.Tooltip(f"{text}:N", title=title) for text, title in zip(texts, titles, strict=True)),
        ],
    )
    dashes = alt.Scale(domain=titles, range=[list(dash) for dash in DASHES[: len(titles)]])
    line = base.mark_line(strokeWidth=1.75, aria=False).encode(
        strokeDash=alt.StrokeDash("line:N", title=None, scale=dashes)
    )
    points = base.mark_point(filled=True).encode(
        size=alt.SizeValue(**alt.when("datum.bound").then(alt.value(8)).otherwise(alt.value(28)))
    )
    floor = []  # N/n, the floor of the chosen head's Precision
    if name == "precision" and any(row.get("precision_floor") for row in rows):
        flat = alt.Chart().transform_filter(chosen).transform_flatten(["n", "precision_floor"])
        mark = flat.mark_line(style="reference", aria=False)
        floor.append(mark.encode(x=alt.X("n:Q"), y=alt.Y("precision_floor:Q")))
    layers = [*floor, line, points.transform_filter("isValid(datum.value)")]
    return alt.LayerChart(layer=list(map(write_layer, layers)), width=CURVE_WIDTH, height=CURVE_HEIGHT, name=name)


WORTH_SEEING = ("induction", "previous", "duplicate")
"""Labels of heads that look at one place in the text, the one that is best shown first."""

CLEAR = 0.5  # Least share of a head's weight on the keys of its label, at one query, of a clear example


def describe_explorer(heads: Sequence[Row], n: int, first: Row, example: Row | None) -> str:
    """Which head is shown first and why, and which maps have blank cells (``explorer_heads`` at ``n``)."""
    why = (
        f"of those labelled {example['label']} that do not rest on the sink, the strongest with a clear example"
        if example
        else "the one that is most clearly of its kind"
    )
    return join_sentences(
        f"Of {count(len(heads), 'head')}, {name_head(first)} is shown first: {why}.",
        _describe_blank(heads, "elbow_n", "an elbow"),
        _describe_blank(heads, "recall", f"a Recall at N = {n:,}: they attend to {n} keys or fewer"),
        _describe_blank(heads, "rho_0", f"a ρ₀: {NO_RHO_0}"),
    )


def choose_first(heads: Sequence[Row], examples: Sequence[Row]) -> tuple[Row, Row | None]:
    """The head that is shown first, and the example to show it at (``explorer_heads``, ``label_strongest``).

    Of the first label of ``WORTH_SEEING`` that has one, the head of largest share that does not rest on the sink and
    has a clear example. Without any, the head that is most clearly of its kind, if possible one that does not rest on
    the sink, and no example.
    """
    by_place = {(head["layer"], head["head"]): head for head in heads}
    for label in WORTH_SEEING:
        for example in (row for row in examples if row["label"] == label and row["held"] >= CLEAR):
            head = by_place[example["layer"], example["head"]]
            if not _rests(head):
                return head, example
    return min(heads, key=lambda head: (_rests(head), head["label"] in {None, OTHER}, -(head["margin"] or 0))), None


def _rests(head: Row) -> bool:
    """Whether a head is known to look at the sink, or gives it most of its weight."""
    return "sink" in (head.get("patterns") or "").split(", ") or (head.get("sink_weight") or 0) > CLEAR


def _describe_blank(heads: Sequence[Row], column: str, without: str) -> str:
    blank = len(heads) - len(drop_nulls(heads, column))
    return f"Blank: {count(blank, 'head')} without {without}." if blank else ""


MOST_KEYS, MOST_TOKENS = 60_000, 40_000
"""Most keys and tokens of the text reader of a page, which has at least one sequence."""

MOST_MEASURED = 420_000
"""Most queries of heads whose measures are there, of as many sequences as have room for all heads, or of one."""


def build_section(source: Source) -> Section:
    """Every head, one by one."""
    return Section(
        "explore",
        "Explore heads",
        "Choose a head on the map, by a click or with the arrow keys, or in the lists above it; the page’s address "
        "then links to it.",
        (_build_explorer(source),),
    )


def _build_explorer(source: Source) -> Figure:
    draft = Figure("explorer", "Heads, one by one", source.ask_query("explorer_heads", n=source.n))
    curves = source.ask_shown("explorer_curves").rows()
    if not source.last_n:
        return draft.leave_empty(NOTHING_SELECTED)
    first, example = choose_opening(source)
    return draft.show(
        describe_explorer(draft.rows, source.n, first, example),
        "Means over sequences. Upper and lower: the printed bounds of Theorems 1 and 2, at the tightest κ, or at the "
        "middle one; scale-free: the lower bound that needs no κ. Norms and cosines, as in Figure 7 of the paper: "
        "norms of the sum s_N, also without the value state of the sink, v_0, or of the last token, v_L, and cosines "
        f"of s_N with both. Errors: how far the head’s output moves, over its norm, if it keeps the N keys with their "
        "weights rescaled, or with the rest’s weight given to the mean value state; beside them the weight left out. "
        f"{FLOOR} The elbow is the N where the harmonic mean of Precision and Recall bends most. "
        "T: Retriever, M: Mixer, R: Reset, O: Other, which meets no rule. The curves come from "
        "reports/explorer/explorer_curves.sql.",
        marks="Grey dashes: the floor N/n of Precision. Upper, lower: the paper’s bounds.",
        charts=(draw_explorer(draft.rows, curves, n=source.n, first=first),),
        broad=True,
    )


def choose_opening(source: Source) -> tuple[Row, Row | None]:
    """The head that the explorer and the text reader show first, and the example that the reader shows it at."""
    heads = source.ask_query("explorer_heads", n=source.n).rows()
    examples = source.ask_study("label_strongest", sequences=count_readable(source)).rows()
    return choose_first(heads, examples)


def count_readable(source: Source) -> int:
    """How many sequences the text reader of a page holds, from the first on; 0 if the study has no keys."""
    first = source.ask_study("reader_keys", sequences=1).rows()
    if not first:
        return 0
    of_one = sum(len(row["position"]) for row in first)
    length = 1 + max(row["query"] for row in first)
    most: int = min(MOST_KEYS // of_one, MOST_TOKENS // length, source.overview["sequences"])
    if source.ask_study("query_means").table.num_rows:
        most = min(most, MOST_MEASURED // (source.overview["all_heads"] * source.overview["context_length"]))
    return max(1, most)
