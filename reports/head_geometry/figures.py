"""Geometry of one head of each kind: s_N, the contribution of each token, and the directions of value states."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from math import ceil, cos, floor, log10, pi, radians, sin, sqrt

import altair as alt
import numpy as np
import pyarrow as pa

from reports.elements import (
    DASH_DOT,
    DASHED,
    HEAD,
    KEY,
    LAST,
    SINK,
    SOLID,
    STEPS,
    equal_scales,
    layer_axis,
    layer_chart,
    level,
    n_axis,
    note,
    points,
    ring,
    style_line,
    tooltips,
)
from reports.figures import NOTHING_SELECTED, Figure, Section, Source
from reports.findings.numbers import Row, drop_nulls, find_span, join_sentences, name_head
from reports.head_geometry import findings
from reports.kinds.labels import KINDS
from reports.queries import Answer

DASHES = {"norm_s": SOLID, "norm_s_without_sink": DASH_DOT, "norm_s_without_last": DASHED}
DASHES |= {"cos_sink": SOLID, "cos_last": DASHED}  # Dashes of the lines, as in the paper's Figure 7
BELOW = "triangle-down"  # Shape of a key whose cosine is below 0, in addition to its colour
CONTEXTS = 6  # Largest number of columns of a chart of contributions

AZIMUTH, ELEVATION = radians(28), radians(20)
"""Rotation of the spheres: the first direction points towards the reader, to the left and down."""

BEYOND_END, ROOM = 1.13, 1.16
"""Distance of the names of the directions from the centre, and extent of the view, in radii of the sphere."""

SIDE = 250  # Height of a sphere, in pixels
PAIRED = 165  # Height of a chart above or below another of the same head, in pixels
NEAR = 2  # The number of components is drawn if it is at most this many times the largest effective dimension


def draw_lines(
    rows: Sequence[Row], names: dict[str, str], *, title: str, says: str, y: "partial[alt.Y]"
) -> alt.LayerChart:
    """Columns that have a value against N, by name: norms or cosines of s_N (Figure 7; ``diagnostics_of_head``)."""
    shown = {column: name for column, name in names.items() if drop_nulls(rows, column)}
    base = alt.Chart().encode(x=n_axis(max(row["n"] for row in rows)).title("N (log scale)"))
    single = len(rows) == 1
    styles = [DASHES[column] for column in shown]
    lines = [
        style_line(base.mark_line(point=single).encode(y=y(f"{column}:Q")), list(shown.values()), name, dashes=styles)
        for column, name in shown.items()
    ]
    dots = points(base.encode(y=y(f"{next(iter(shown))}:Q"), tooltip=tooltips(".3~g", n="N", **shown)), always=single)
    return layer_chart(rows, title, f"Line chart of {says}", *lines, dots, height=PAIRED)


def draw_contributions(keys: Sequence[Row], *, title: str, largest: float) -> alt.LayerChart:
    """Mean contribution of every key to a head's output, by context size (Figure 10; ``contributions_of_head``).

    ``largest`` is the largest absolute cosine of other keys of all charts side by side.
    """
    visible = findings.select_visible(keys)
    queries = sorted({row["query"] for row in visible})
    kept = {queries[round(index)] for index in np.linspace(0, len(queries) - 1, min(len(queries), CONTEXTS))}
    rows = [_build_row(row) for row in visible if row["query"] in kept]
    decades = _list_decades([row["norm"] for row in rows])
    kinds = {kind: shape for kind, shape in _KINDS.items() if any(row["kind"] == kind for row in rows)}
    shapes = alt.Scale(domain=list(kinds), range=list(kinds.values()))
    legend = alt.Legend(orient="top", columns=2, symbolSize=80, symbolStrokeWidth=1.5, symbolFillColor="transparent")
    y = alt.Y("norm:Q", scale=alt.Scale(type="log", domain=[decades[0], decades[-1]]))
    base = alt.Chart().encode(
        x=alt.X("context:O", scale=alt.Scale(paddingInner=0.2, paddingOuter=0.1))
        .title("Context (tokens)")
        .axis(labelAngle=0, format=",d", grid=False),
        xOffset=alt.XOffset("share:Q", scale=alt.Scale(domain=[0, 1])),
        y=y.title("Mean ‖αᵢ vᵢ‖ (model units, log scale)").axis(format="~g", values=decades),
        shape=alt.Shape("kind:N", title=None, scale=shapes, legend=legend),
        tooltip=[
            *tooltips(".3~g", kind="Key", position="Position", context="Context (tokens)"),
            *tooltips(".3~g", norm="Mean ‖αᵢ vᵢ‖ (model units)"),
            *tooltips(".3~f", cosine="Cosine, last token"),
        ],
    )
    if drop_nulls(rows, "cosine"):
        scale = alt.Scale(domain=[-largest, 0, largest], range="diverging", interpolate="rgb", clamp=True)
        bar = alt.Legend(orient="bottom", direction="horizontal", gradientLength=200, format=".2~f", titleLimit=240)
        base = base.encode(color=alt.Color("cosine:Q", title="Cosine, last token", scale=scale, legend=bar))
    description = f"Scatter plot of contributions by context size. {findings.describe_contributions(keys)}"
    return layer_chart(
        rows,
        title,
        description.rstrip(),
        base.mark_point(filled=True, size=20, opacity=0.85).transform_filter("!datum.marked"),
        base.mark_point(filled=True, style="ringed").transform_filter("datum.marked"),
    )


def _list_decades(values: Sequence[float]) -> list[float]:
    """Powers of ten around positive ``values``, at most about eight of them."""
    low = floor(log10(min(values)))
    high = max(ceil(log10(max(values))), low + 1)
    step = ceil((high - low) / 7)
    return [10.0**power for power in range(low, high + step, step)]


_KINDS = {"sink": SINK, "last token": LAST, "other key": KEY, "other, cosine below 0": BELOW}
"""Shapes of the keys, as the legend names them."""


def _build_row(row: Row) -> Row:
    cosine, role = row["mean_cos_last"], row["role"]
    others = "other, cosine below 0" if cosine is not None and cosine < 0 else "other key"
    return {
        "context": row["query"] + 1,
        "share": row["position"] / row["query"] if row["query"] else 0.5,
        "position": row["position"],
        "kind": {"sink": "sink", "last": "last token"}.get(role, others),
        "marked": role != "other",
        "norm": row["mean_norm_y"],
        "cosine": cosine,
    }


def draw_sphere(directions: Sequence[Row], *, title: str, of_kv_head: Row, n: int) -> alt.LayerChart:
    """Value states of a head within three principal directions, as a ball (Figure 9; ``directions_of_head``).

    The ``n`` keys of largest weight are filled; ``of_kv_head`` is a row of ``principal_directions_by_head``.
    """
    heavy = {row["position"] for row in drop_nulls(directions, "selected_rank") if row["selected_rank"] <= n}
    rows = sorted(
        (_turn_key(row, heavy=row["position"] in heavy) for row in directions),
        key=lambda row: (row["marked"], row["depth"]),
    )
    across, along = equal_scales((0, 0), ROOM)
    x, y = alt.X("x:Q", scale=across, axis=None), alt.Y("y:Q", scale=along, axis=None)
    description = f"A sphere seen from outside with one point per key. {findings.describe_directions(of_kv_head)}"
    return layer_chart(
        rows,
        title,
        description,
        *_draw_graticule(x, y),
        *_draw_inside(x, y, sqrt(findings.sum_shares(of_kv_head))),
        _draw_keys().encode(x=x, y=y),
        _name_directions(x, y),
        note(f"filled: {len(heavy)} heaviest", "left"),
        note("dashed: typical length", "right", upper=True),
        height=SIDE,
    )


def project_vectors(vectors: np.ndarray) -> np.ndarray:
    """Project vectors (…, 3) of the principal directions to the view: to the right, upwards, towards the reader."""
    first, second, third = np.moveaxis(np.asarray(vectors, dtype=float), -1, 0)
    right = second * cos(AZIMUTH) - first * sin(AZIMUTH)
    forth = first * cos(AZIMUTH) + second * sin(AZIMUTH)
    up = third * cos(ELEVATION) - forth * sin(ELEVATION)
    return np.stack([right, up, forth * cos(ELEVATION) + third * sin(ELEVATION)], axis=-1)


def _turn_key(row: Row, *, heavy: bool) -> Row:
    """Turn a key into its mark: keys nearer to the reader are larger and stronger."""
    x, y, depth = project_vectors(np.array([row["x"], row["y"], row["z"]])).tolist()
    marked = row["role"] != "other"
    nearness = (1 + depth) / 2
    return {
        "position": row["position"],
        "x": round(x, 4),
        "y": round(y, 4),
        "depth": round(depth, 4),
        "length": round(float(np.linalg.norm([row["x"], row["y"], row["z"]])), 4),
        "key": {"sink": "sink", "last": "last token"}.get(row["role"], "other key"),
        "marked": marked,
        "filled": int(heavy),
        "size": 120 if marked else round((40 if heavy else 12) * (1 + nearness)),
        "strength": round((0.6 if marked or heavy else 0.2) + 0.4 * nearness, 2),
        "mean_weight": row["mean_weight"],
    }


def _draw_keys() -> alt.Chart:
    """Keys by role; those of the largest weight are filled."""
    names = {"other key": KEY, "sink": SINK, "last token": LAST}
    legend = alt.Legend(orient="top", symbolSize=80, symbolStrokeWidth=1.5)
    domain = alt.Scale(domain=list(names))
    shapes = alt.Scale(domain=list(names), range=list(names.values()))
    keys: alt.Chart = alt.Chart().mark_point(strokeWidth=1.25)
    return keys.encode(
        shape=alt.Shape("key:N", title=None, scale=shapes, legend=legend),
        stroke=alt.Stroke("key:N", title=None, scale=domain, legend=legend),
        fill=alt.Fill("key:N", title=None, scale=domain, legend=legend),
        fillOpacity=alt.FillOpacity("filled:Q", scale=None),
        size=alt.Size("size:Q", scale=None),
        opacity=alt.Opacity("strength:Q", scale=None),
        tooltip=[
            *tooltips(
                ".3~p", key="Key", position="Position in sequence 0", mean_weight="Mean attention weight (share)"
            ),
            *tooltips(".3~f", length="Length in the three directions"),
        ],
    )


def _draw_graticule(x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """The sphere: its outline, and the parallels and meridians of the first direction that face the reader."""
    turns = np.linspace(0, 2 * pi, STEPS + 1)
    latitudes = [(cos(angle), sin(angle)) for angle in np.radians((30, 60, 90, 120, 150))]
    parallels = [
        np.stack([np.full_like(turns, along), around * np.cos(turns), around * np.sin(turns)], axis=-1)
        for along, around in latitudes
    ]
    meridians = [
        np.stack([np.cos(turns), np.sin(turns) * cos(angle), np.sin(turns) * sin(angle)], axis=-1)
        for angle in np.radians((0, 45, 90, 135))
    ]
    rows = [
        row
        for index, line in enumerate([*parallels, *meridians])
        for row in _select_facing(project_vectors(line), str(index))
    ]
    lines = alt.Chart(alt.InlineData(values=rows)).mark_line(style="graticule", strokeWidth=0.75, aria=False)
    return [
        ring(x, y, (0, 0), 1, "outline"),
        lines.encode(x=x, y=y, order=alt.Order("order:Q"), detail=alt.Detail("line:N")),
    ]


def _select_facing(line: np.ndarray, name: str) -> list[Row]:
    """Select the runs of a line's points that face the reader, each with its own name."""
    seen = [(order, *point) for order, point in enumerate(line.round(3).tolist())]
    runs = [list(run) for faces, run in groupby(seen, key=lambda point: point[3] >= 0) if faces]
    return [
        {"x": x, "y": y, "order": order, "line": f"{name}.{index}"}
        for index, run in enumerate(runs)
        for order, x, y, _ in run
    ]


def _draw_inside(x: alt.X, y: alt.Y, typical: float) -> list[alt.Chart]:
    """Draw the typical distance of points from the centre, and the three directions."""
    ends = [
        {"x": right, "y": up, "end_x": 0, "end_y": 0} for right, up, _ in project_vectors(np.eye(3)).round(4).tolist()
    ]
    spokes = alt.Chart(alt.InlineData(values=ends)).mark_rule(style="arrow", aria=False)
    return [
        ring(x, y, (0, 0), typical, "reference"),
        spokes.encode(x=x, y=y, x2=alt.X2("end_x:Q"), y2=alt.Y2("end_y:Q")),
    ]


def _name_directions(x: alt.X, y: alt.Y) -> alt.Chart:
    """The names of the three directions, just beyond their ends and in front of all."""
    ends = zip(project_vectors(BEYOND_END * np.eye(3)).round(4).tolist(), ("1st", "2nd", "3rd"), strict=True)
    names = alt.InlineData(values=[{"x": right, "y": up, "name": name} for (right, up, _), name in ends])
    text: alt.Chart = alt.Chart(names).mark_text(style="on-small")
    return text.encode(x=x, y=y, text=alt.Text("name:N"))


def build_section(source: Source) -> Section:
    """Geometry of single heads."""
    return Section(
        "geometry",
        "One head of each kind",
        "The clearest head of each kind: how s_N grows and turns as more keys are selected, which keys contribute to "
        "it, and how many directions its value states use.",
        (_build_diagnostics(source), _build_contributions(source), _build_spheres(source), _build_dimensions(source)),
        appendix=True,
    )


@dataclass(frozen=True)
class _Example:
    """One head that represents its kind, and the answer of a query about it."""

    place: pa.Table  # The head as one row of ``label_examples``
    answer: Answer

    @cached_property
    def head(self) -> Row:
        row: Row = self.place.to_pylist()[0]
        return row

    @property
    def title(self) -> str:
        return f"{self.head['label']}: {name_head(self.head)}"

    @property
    def rows(self) -> list[Row]:
        return self.answer.rows()

    @property
    def table(self) -> pa.Table:
        """Its rows, with the head in front."""
        table = self.answer.table
        for name in ("head", "layer", "label"):
            if name not in table.column_names:
                table = table.add_column(0, name, pa.chunked_array(self.place[name].chunks * table.num_rows))
        return table.combine_chunks()


def _find_examples(source: Source, query: str, *, of_query: bool = True) -> list[_Example]:
    """Find the head of each kind with the largest margin, with its rows of ``query``, which may be none."""
    ask = source.ask_query if of_query else source.ask_study
    heads = source.ask_query("label_examples").table
    places = [heads.slice(index, 1) for index in range(heads.num_rows)]
    return [_Example(at, ask(query, layer=at["layer"][0].as_py(), head=at["head"][0].as_py())) for at in places]


def _combine_tables(examples: list[_Example]) -> pa.Table:
    return pa.concat_tables([example.table for example in examples])


def _explain_missing(examples: list[_Example], shown: list[_Example], why: str) -> str:
    """Say which kinds are absent, and which examples are not shown and ``why``."""
    hidden = [example.title for example in examples if example not in shown]
    missing = [kind for kind in KINDS if kind not in {example.head["label"] for example in examples}]
    return join_sentences(
        f"No head is labelled {' or '.join(missing)}, so none is shown." if missing else "",
        f"Not shown, because {why}: {'; '.join(hidden)}." if hidden else "",
    )


def _join_paragraphs(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


def _build_diagnostics(source: Source) -> Figure:
    draft = Figure("diagnostics", "How s_N grows and turns", source.ask_query("label_examples"))
    examples = _find_examples(source, "diagnostics_of_head")
    shown = [example for example in examples if example.answer.table.num_rows]
    if not shown:
        return draft.leave_empty(NOTHING_SELECTED)
    domain = find_span([row for example in shown for row in example.rows], findings.COSINES, most=0.1)
    turning = [one for one in shown if any(drop_nulls(one.rows, column) for column in findings.COSINES)]
    norm = partial(alt.Y, title="Norm (model units)", scale=alt.Scale(zero=True))
    cosine = partial(alt.Y, title="Cosine of the sum with", scale=alt.Scale(domain=list(domain)))
    panels = []
    for one in shown:
        says = f"norms against N on a log axis. {findings.describe_norms(one.rows)}"
        panels.append(draw_lines(one.rows, findings.NORMS, title=one.title, says=says, y=norm))
        if one in turning:
            title, told = f"Cosines: {name_head(one.head)}", findings.describe_cosines(one.rows)
            says = f"cosines against N on a log axis. {told}"
            panels.append(draw_lines(one.rows, findings.COSINES, title=title, says=says, y=cosine))
    return draft.show(
        _join_paragraphs(
            findings.describe_examples([example.head for example in shown]),
            _explain_missing(examples, shown, "it attends to one key"),
            *(f"{one.title}: {findings.describe_cosines(one.rows)}" for one in shown if one not in turning),
        ),
        "Means over sequences. Margin: by how much the score of the label exceeds the next one, that of Other being 0; "
        "below 0 where it does not. In the paper a Retriever’s norm drops sharply without the "
        "last token, whose direction s_N keeps at every N; in a Mixer s_N turns from v₀ to v_L and the two norms "
        "converge; in a Reset head the sink’s part is the larger one and cos(s_N, v_L) stays low until N is very "
        "large.",
        answer=shown[0].answer,
        part=_combine_tables(shown),
        paper="Figure 7",
        marks="Of each head: norm of s_N, and without the sink or the last token; its cosines with their value states.",
        tab="The sum",
        charts=tuple(panels),
        stacked=len(panels) == 2 * len(shown),
    )


def _build_contributions(source: Source) -> Figure:
    draft = Figure("contributions", "Contribution of each token, by context size", source.ask_query("label_examples"))
    examples = _find_examples(source, "contributions_of_head", of_query=False)
    shown = [example for example in examples if any(row["mean_norm_y"] for row in example.rows)]
    if not shown:
        return draft.leave_empty("No key contributes anything.")
    others = [row for one in shown for row in drop_nulls(one.rows, "mean_cos_last") if row["role"] != "last"]
    largest = max([0.1, *(abs(float(row["mean_cos_last"])) for row in others)])
    return draft.show(
        _join_paragraphs(
            *(
                join_sentences(
                    f"{example.title}.",
                    findings.describe_contributions(example.rows),
                    findings.describe_hidden(example.rows),
                )
                for example in shown
            ),
            _explain_missing(examples, shown, "its keys contribute nothing"),
        ),
        "A column has at most about 200 keys besides the sink and the last token: the largest, and an even selection "
        "of the others. In the paper the last token dominates in a Retriever, lies between sink and content in a "
        "Mixer, and does not stand out in a Reset head, whose mass is spread broadly.",
        answer=shown[0].answer,
        part=_combine_tables(shown),
        paper="Figure 10",
        marks="Each mark is a key: mean over sequences of the norm of its weighted value state, in columns from the "
        "first key to the last token. Colour: cosine of its value state with the last token’s.",
        tab="Contributions",
        charts=tuple(draw_contributions(example.rows, title=example.title, largest=largest) for example in shown),
    )


def _build_spheres(source: Source) -> Figure:
    draft = Figure("spheres", "Value states of heads on a sphere", source.ask_query("label_examples"))
    heads = source.ask_study("principal_directions_by_head").rows()
    of_kv_head = {(row["layer"], row["kv_head"]): row for row in drop_nulls(heads, "effective_dimension")}
    examples = _find_examples(source, "directions_of_head")
    directions = [(example, of_kv_head.get((example.head["layer"], example.head["kv_head"]))) for example in examples]
    shown = [(example, row) for example, row in directions if row and example.rows]
    if not shown:
        return draft.leave_empty(findings.describe_dimensions(heads))
    draw = partial(draw_sphere, n=max(source.n, 1))
    return draft.show(
        _join_paragraphs(
            *(f"{e.title}. {findings.describe_directions(row)}" for e, row in shown),
            _explain_missing(examples, [e for e, _ in shown], "its value states have norm 0"),
        ),
        "The first direction points towards the reader, to the left and down. A value state within the three "
        "directions lies on the sphere; the others lie inside, the deeper the more they point elsewhere. The dashed "
        "circle is the typical length (root mean square). Keys nearer to the reader are larger and stronger. The paper "
        "draws heads as spheres in three dimensions, without data.",
        answer=shown[0][0].answer,
        part=_combine_tables([example for example, _ in shown]),
        paper="Figure 9",
        marks="Value states of sequence 0, divided by their norm, along the first three principal directions of their "
        "KV head; filled: keys of the largest mean weight.",
        tab="Directions",
        charts=tuple(draw(e.rows, title=e.title, of_kv_head=row) for e, row in shown),
    )


def _build_dimensions(source: Source) -> Figure:
    draft = Figure(
        "effective-dimension", "Effective dimension by layer", source.ask_study("principal_directions_by_head")
    )
    rows, told = drop_nulls(draft.rows, "effective_dimension"), findings.describe_dimensions(draft.rows)
    if not rows:
        return draft.leave_empty(told)
    largest = max(row["effective_dimension"] for row in rows)
    sizes = {row["head_dim"] for row in rows}
    near = [size for size in sizes if size <= NEAR * largest] if len(sizes) == 1 else []
    x = layer_axis(draft.rows)
    y = partial(alt.Y, title="Effective dimension (number of directions)", scale=alt.Scale(zero=True))
    shares = {
        f"share_{index}": f"Share of the {name} direction"
        for index, name in enumerate(("first", "second", "third"), start=1)
    }
    tooltip = [
        HEAD[0],
        alt.Tooltip("kv_head:O", title="KV head"),
        *tooltips(".3~g", effective_dimension="Effective dimension", head_dim="Components of a value state"),
        *tooltips(".3~p", **shares),
    ]
    mean = "mean(effective_dimension):Q"
    ticks = alt.Chart().mark_tick(style="head", orient="horizontal", thickness=1.5)
    means = alt.Chart().mark_point(style="average", filled=True).encode(x=x, y=y(mean))
    of_layer = [HEAD[0], alt.Tooltip(mean, title="Mean over its KV heads", format=".3~g")]
    chart = layer_chart(
        rows,
        draft.title,
        f"Strip chart of the effective dimension of each KV head. {told}",
        *(level(size, f"all {size}") for size in near),
        ticks.encode(x=x, y=y("effective_dimension:Q"), tooltip=tooltip),
        means.encode(tooltip=of_layer),
    )
    return draft.show(
        told,
        "One over the sum of the squared shares of all principal directions: 1 if all value states lie along one line, "
        "and the number of their components if they spread evenly. The paper has no such figure.",
        charts=(chart,),
        broad=True,
        marks="Stroke: one KV head; dot: mean of the layer.",
        tab="Dimension",
    )
