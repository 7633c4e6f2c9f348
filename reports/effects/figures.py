"""What heads do: the model without each head, and with fewer keys.

A figure without rows is left out: most studies do not ask for effects.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import altair as alt

from geometry.statistics.verdicts import ERROR_RATE
from reports import theme
from reports.elements import (
    ENDS,
    HEAD,
    head_grid,
    keep_columns,
    layer_chart,
    level,
    log_axis,
    log_ticks,
    style_line,
    tooltips,
    write_in_cells,
)
from reports.figures import Figure, Section, Source
from reports.findings.claims import format_interval
from reports.findings.listings import DASH, Cell, Listing, format_number, format_own_interval, tabulate
from reports.findings.numbers import Row, count, count_sides, drop_nulls, join_sentences, name_head, number
from reports.kinds.labels import add_nearest, dots, fill_cells
from reports.queries import Answer

ERROR = "error_renormalised_16"  # The measure that ``loss_associations`` compares others with

MEASURES = {
    "recall": "Recall",
    "elbow": "Elbow N",
    "retriever_score": "Retriever score",
    "mixer_score": "Mixer score",
    "reset_score": "Reset score",
    "rho_0": "ρ₀",
    "effective_keys": "Effective keys",
    ERROR: "Error of 16 keys",
    "error_mean_16": "Error with the mean for the rest",
    "weight_left_out_16": "Weight left out of 16 keys",
}
"""Measures of a head that are correlated with the loss without it."""

KINDS = {
    "zero": "set to zero",
    "mean": "replaced by its mean",
    "sink": "replaced by the sink’s value state",
    "selected": "taken over the 16 keys of largest weight",
}
"""What the output of a head is replaced by."""

POLICIES = {
    "same_n": "same N",
    "same_n_dropped": "same N, rest dropped",
    "same_n_mean": "same N, rest → mean",
    "same_n_mean_of_rest": "same N, rest → its mean",
    "off_mean": "off the mean",
    "off_mean_dropped": "off the mean, rest dropped",
    "off_mean_mean": "off the mean, rest → mean",
    "off_mean_mean_of_rest": "off the mean, rest → its mean",
    "same_n_window": "same N with window",
    "same_n_window_mean": "same N with window, rest → mean",
    "off_mean_window": "off the mean with window",
    "off_mean_window_mean": "off the mean with window, rest → mean",
    "elbow": "N by elbow",
    "recall": "N by Recall",
    "n_90": "N by 90 % of the weight",
    "error": "N by error",
    "error_mean": "N by error, rest → mean",
    "mass": "share of weight",
    "mass_mean": "share of weight, rest → mean",
    "random_budgets": "N by elbow, shuffled",
    "sink_recent": "sink and recent",
    "full_heads_elbow": "all keys by elbow",
    "full_heads_mass": "all keys by mass",
    "full_heads_random": "all keys at random",
}
"""Policies of sparse attention, as legends name them; the weight of the rest is renormalised if nothing is said."""


def describe_ablation(rows: Sequence[Row]) -> str:
    """The head with the largest increase of the loss, and those with one beyond its interval (``ablation_by_head``)."""
    most = max(rows, key=lambda row: row["delta_loss"])
    return join_sentences(
        f"With the output of one head {KINDS[most['kind']]}, the loss of {number(most['plain_loss'])} nats rises most "
        f"without {name_head(most)}, by {format_interval(most, 'delta_loss')}.",
        count_sides(rows) or "With one sequence there are no intervals.",
    )


def format_correlation(row: Row) -> str:
    """Format a correlation within layers with its interval and p (``loss_associations``)."""
    return f"{format_own_interval(row, 'correlation')}, p = {number(row['p'])}"


def describe_correlations(rows: Sequence[Row]) -> str:
    """The measure most correlated with the loss, and those that pass their test (``loss_associations``)."""
    if not rows:
        return "Too few heads have a loss and a measure for a correlation."
    most = max(rows, key=lambda row: abs(row["correlation"]))
    clear = [MEASURES[row["measure"]] for row in rows if row["p_holm"] <= ERROR_RATE]
    verb = "have significant correlations" if len(clear) > 1 else "has a significant correlation"
    return join_sentences(
        f"Within layers the loss goes most with {MEASURES[most['measure']]}: rank correlation "
        f"{format_correlation(most)}.",
        f"Of {count(len(rows), 'measure')}, {', '.join(clear) or 'none'} {verb} (over sequences and over permutations "
        "of KV groups within layers, 5 % over all of them).",
    )


def describe_budgets(rows: Sequence[Row]) -> str:
    """Cheapest and most expensive policy at the smallest budget, with and without access to the weights."""
    least = min(row["budget"] for row in rows)
    mine = [row for row in rows if row["budget"] == least]
    parts = []
    for needs, said in (("weights", "that see the weights"), ("statistics", "that know only past statistics")):
        some = [row for row in mine if row["needs"] == needs]
        if some:
            best = min(some, key=lambda row: row["delta_loss"])
            worst = max(some, key=lambda row: row["delta_loss"])
            parts.append(
                f"of the policies {said}, “{POLICIES.get(best['policy'], best['policy'])}” costs least, "
                f"{number(best['delta_loss'])} nats, and “{POLICIES.get(worst['policy'], worst['policy'])}” most, "
                f"{number(worst['delta_loss'])}"
            )
    return f"With about {number(mine[0]['keys_kept'])} keys per query, {'; '.join(parts)}."


def summarise_effects(rows: Sequence[Row], associations: Sequence[Row]) -> str:
    """Summarise what heads do in a line for the terminal (``ablation_by_head``, ``loss_associations``)."""
    of_kind = [row for row in associations if row["kind"] == rows[0]["kind"]]
    return join_sentences(describe_ablation(rows), describe_correlations(of_kind))


WITHIN: dict[str, Cell] = {
    "Measure": lambda row: MEASURES[row["measure"]],
    "Within layers (interval)": lambda row: format_own_interval(row, "correlation"),
}
"""First columns of tables of rank correlations."""


def tabulate_correlations(rows: Iterable[Row]) -> Listing:
    """Rank correlations within layers, and over all heads (``loss_associations``)."""
    return tabulate(
        rows,
        WITHIN
        | {
            "p": lambda row: number(row["p"]),
            "Over all heads": lambda row: format_number(row["correlation_over_all"]),
            "Heads": lambda row: f"{row['heads']:,}",
        },
    )


NATS = 0.01  # Losses below this are drawn on a linear scale, those above on a logarithmic one
WRITTEN_HEADS = 12  # Largest number of heads per row for which a map has its values written in the cells
CONTROLS = ("random_budgets", "full_heads_random")  # Random policies
REFERENCES = ("same_n", "same_n_mean", "mass")  # Policies that others are compared with, in several charts

PANELS = {
    "What the rest’s weight goes to": ("same_n", "same_n_dropped", "same_n_mean", "same_n_mean_of_rest"),
    "Keys off the mean": ("same_n_mean", "off_mean", "off_mean_dropped", "off_mean_mean", "off_mean_mean_of_rest"),
    "Sink and recent keys always kept": (
        *("same_n_mean", "same_n_window", "same_n_window_mean", "off_mean_window", "off_mean_window_mean"),
    ),
    "Budgets by head": ("same_n", "elbow", "recall", "n_90", "error", "mass", "random_budgets"),
    "Budgets by share of weight": ("same_n", "same_n_mean", "mass", "mass_mean"),
    "Budgets by error": ("same_n", "same_n_mean", "error", "error_mean", "mass"),
    "Policies that know past statistics": (
        *("sink_recent", "full_heads_elbow", "full_heads_mass", "full_heads_random"),
    ),
}
"""The policies of each chart of losses, by its title."""


def draw_kind_map(heads: Sequence[Row]) -> alt.LayerChart:
    """The kind of every head, on the same grid."""
    rows = _select_rows(heads)
    base, height = head_grid(rows)
    return layer_chart(
        rows,
        "Kind of head",
        "Map of the kinds of heads, layers by heads.",
        fill_cells(base, letters=True).encode(tooltip=_make_tooltip()),
        base.mark_text(style="on-large").encode(text=alt.Text("letter:N")),
        height=height,
    )


def draw_map(heads: Sequence[Row], column: str, title: str, says: str) -> alt.LayerChart:
    """A heat map of one column; on a log scale from ``NATS`` on, or a linear one."""
    rows = _select_rows(heads, column)
    base, height = head_grid(rows)
    values = [row[column] for row in drop_nulls(rows, column)] or [0.0]
    reach, signed = max(map(abs, values)) or 1.0, column == "delta_loss"
    log = signed or column == "effective_keys"
    scale = alt.Scale(type="symlog", constant=NATS if signed else 1) if log else alt.Scale(zero=True)
    if signed:
        scale["domain"], scale["range"] = [-reach, reach], "diverging"
    elif log:
        scale["domain"] = [0, reach]  # whose ticks the colour bar has
    legend = alt.Legend(format=".3~g", gradientLength=height)
    if log:
        constant = NATS if signed else 1  # labels a factor of 10 apart: those of equal steps would touch
        ticks = [constant * 10**power for power in range(12) if constant * 10**power <= reach]
        legend["values"] = [*(-tick for tick in reversed(ticks) if signed), 0.0, *ticks]
    cells = base.mark_rect().encode(color=alt.Color(f"{column}:Q", title=None, scale=scale, legend=legend))
    written = len({row["head"] for row in rows}) <= WRITTEN_HEADS
    middle = reach * (0.1 if log else 0.5)
    text = alt.Text(f"{column}:Q", format=".3~g" if column == "effective_keys" else ".2~f")
    texts = write_in_cells(base, text, f"isValid(datum.{column}) && abs(datum.{column})", middle)
    described = f"Heat map, layers by heads. {says}"
    return layer_chart(
        rows, title, described, cells.encode(tooltip=_make_tooltip()), *(texts if written else []), height=height
    )


SHOWN = {
    "delta_loss": "Loss increase without the head",
    **ENDS,
    "kl": "KL",
    "recall": "Recall",
    "effective_keys": "Effective keys",
}
"""Columns of the tooltip of a head besides its place and kind, with their names."""


def _select_rows(heads: Sequence[Row], *columns: str) -> list[Row]:
    """Select the columns of the tooltip and some others: a page holds the rows of every chart."""
    return add_nearest(keep_columns(heads, "layer", "head", "label", "nearest", *SHOWN, *columns))


def _make_tooltip(**shown: str) -> list[alt.Tooltip]:
    return [*HEAD, *tooltips(".3~g", label="Kind", **SHOWN | shown)]


def draw_loss_scatter(heads: Sequence[Row], *, measure: str, correlation: Row) -> alt.LayerChart:
    """Increase of the loss against one measure, a dot for each head that has it (``ablation_by_head``).

    ``correlation`` is its row of ``loss_associations``; of its kind ``selected``, the loss is that of keeping 16 keys.
    """
    loss = "delta_loss_selected" if correlation["kind"] == "selected" else "delta_loss"
    rows = drop_nulls(drop_nulls(_select_rows(heads, measure, loss), measure), loss)
    name = MEASURES[measure]
    log = measure in {"effective_keys", "elbow"}
    scale = alt.Scale(type="log", nice=False, padding=6) if log else alt.Scale(zero=False, padding=6)
    x = alt.X(f"{measure}:Q", scale=scale)
    y = alt.Y(f"{loss}:Q", title="Loss increase (nats)", scale=alt.Scale(type="symlog", constant=NATS))
    tooltip = _make_tooltip(**{measure: name} | ({} if loss == "delta_loss" else {loss: "Loss increase with 16 keys"}))
    return layer_chart(
        rows,
        f"{name}: {number(round(correlation['correlation'], 2))}",
        f"Dot plot of the loss increase without a head against {name}. Rank correlation "
        f"{format_correlation(correlation)}.",
        level(0, ""),
        *dots(rows, x.title(name).axis(tickCount=5, grid=False), y.axis(tickCount=4), tooltip, legend=False),
        height=theme.PANEL_HEIGHT,
    )


def list_panels(policies: Sequence[Row]) -> list[str]:
    """The titles of ``PANELS`` that have a policy of their own in ``loss_by_keys``."""
    measured = {row["policy"] for row in policies} - {*REFERENCES}
    return [title for title, names in PANELS.items() if measured & {*names}]


def draw_loss_by_keys(policies: Sequence[Row], *, panel: str) -> alt.LayerChart:
    """Increase of the loss against the mean number of keys, a curve for each policy of a panel (``loss_by_keys``)."""
    rows = [{**row, "name": POLICIES[row["policy"]]} for row in policies if row["policy"] in PANELS[panel]]
    drawn = [name for name in PANELS[panel] if any(row["policy"] == name for row in rows)]
    labels = [POLICIES[name] for name in drawn if name not in CONTROLS]
    kept = [row["keys_kept"] for row in rows]
    ticks = [tick for tick in log_ticks(int(max(kept)) + 1) if tick >= min(kept) / 2]
    x = log_axis("keys_kept", "Keys kept, mean (log scale)", ticks, padding=12)
    y = partial(alt.Y, title="Loss increase (nats)", scale=alt.Scale(type="symlog", constant=NATS, nice=False))
    shown = {"keys_kept": "Keys kept", "delta_loss": "Loss increase", **ENDS}
    shown |= {"excess_loss": "Excess over the same N"}
    tooltip = [*tooltips(name="Policy"), alt.Tooltip("draws:Q", title="Draws"), *tooltips(".3~g", **shown)]
    base = alt.Chart().encode(x=x, tooltip=tooltip)
    marks = []
    for policy in drawn:
        mine = base.transform_filter(f"datum.policy == '{policy}'")
        if policy in CONTROLS:
            marks += [
                mine.mark_line(style="reference").encode(y=y("delta_loss:Q")),
                mine.mark_point(style="reference", shape="cross").encode(y=y("delta_loss:Q")),
            ]
            continue
        of_policy = (
            mine.mark_area().encode(y=y("low:Q"), y2=alt.Y2("high:Q")),
            mine.mark_line().encode(y=y("delta_loss:Q")),
            mine.mark_point(filled=True, size=45).encode(y=y("delta_loss:Q")),
        )
        area, *others = (style_line(mark, labels, POLICIES[policy]) for mark in of_policy)
        area["encoding"]["strokeDash"] = alt.Undefined  # an area has no dashes
        marks += [area, *others]
    return layer_chart(
        rows,
        panel,
        f"Line chart of the loss increase against the number of keys kept. {describe_budgets(policies)}",
        level(0, ""),
        *marks,
    )


ROWS = 48  # Number of heads in the table of the dot plots, those of largest increase; the table of the maps has all


def build_section(source: Source) -> Section:
    """What heads do; no figures for a study that does not ask for effects."""
    return Section(
        "effects",
        "What heads do",
        "Geometry describes heads; how much does the model depend on them? The model is run again with the output of "
        "one head replaced, before the output projection, and with fewer keys for every query. Losses are next-token "
        "cross entropy in nats, compared with the same sequences without intervention; budgets are computed on the "
        "study’s sequences, and their losses on others.",
        (*_build_ablation(source), *_build_budgets(source)),
    )


def _build_ablation(source: Source) -> Iterator[Figure]:
    answer = source.ask_study("ablation_by_head")
    rows = answer.rows()
    if not rows:
        return
    associations = source.ask_study("loss_associations")
    correlations = [row for row in associations.rows() if row["kind"] == rows[0]["kind"]]
    sequences = count(rows[0]["sequences"], "sequence")
    yield Figure(
        "loss-by-head",
        "Loss without each head",
        answer,
        describe_ablation(rows),
        f"Mean over {sequences} of the study; the colours of losses and effective keys are on a log scale. The other "
        "maps show the kind, the effective number of keys and the Recall (mean over ln N) of the same heads. The "
        "paper removes no head.",
        charts=(
            draw_map(rows, "delta_loss", "Loss increase (nats)", describe_ablation(rows)),
            *([draw_kind_map(rows)] if drop_nulls(rows, "label") else []),
            *(
                draw_map(rows, measure, MEASURES[measure], f"{MEASURES[measure]} of every head.")
                for measure in ("effective_keys", "recall")
                if drop_nulls(rows, measure)
            ),
        ),
        titled=True,
    )
    if not correlations:
        return
    yield Figure(
        "loss-and-geometry",
        "Loss without a head and its geometry",
        answer,
        describe_correlations(correlations),
        "One dot per head, coloured by its kind; the titles give rank correlations over heads within layers, since "
        "depth moves both, with intervals over sequences and the p value of exchanging KV groups within layers. "
        "Measures are means over all sequences; the claim about Recall takes that of the sequence in which the loss is "
        f"measured. The table has the {ROWS} heads of largest increase; its SQL returns all of them. The paper hopes "
        "for such a relation but does not test it.",
        part=answer.table.sort_by([("delta_loss", "descending")]).slice(0, ROWS),
        whole=answer.table,
        charts=tuple(draw_loss_scatter(rows, measure=row["measure"], correlation=row) for row in correlations),
        listing=tabulate_correlations(correlations),
    )
    yield from _build_error(source, rows, associations)


def _build_error(source: Source, heads: Sequence[Row], associations: Answer) -> Iterator[Figure]:
    """Whether the loss of keeping 16 keys goes with what they leave of the head's output, in the words of the claim."""
    rows = [row for row in associations.rows() if row["kind"] == "selected"]
    shown = [row for row in rows if row["measure"] in {ERROR, "weight_left_out_16"}]
    if ERROR not in {row["measure"] for row in shown}:
        return
    (claim,) = (row for row in source.ask_study("claims").rows() if row["claim"] == "error_tells_loss")
    yield Figure(
        "loss-and-error",
        "Loss with 16 keys for one head, and the error they leave",
        associations,
        claim["sentence"],
        "One dot per head, which alone keeps the 16 keys of largest weight of every query, renormalised. Error: "
        "what that leaves of its output at the last query, over its norm: the weight left out times the distance "
        "between the means of the value states left out and kept (arXiv 2512.07647). Ahead: Fisher’s z of the rank "
        "correlation with the error, minus that with the measure, in the direction in which the measure goes with "
        "the loss. The paper has no such figure.",
        charts=tuple(draw_loss_scatter(heads, measure=row["measure"], correlation=row) for row in shown),
        listing=tabulate(
            rows,
            WITHIN
            | {
                "Error ahead by (interval)": lambda row: format_own_interval(row, "error_ahead") or DASH,
                "p (Holm)": lambda row: format_number(row["error_ahead_p_holm"]),
            },
        ),
    )


def _build_budgets(source: Source) -> Iterator[Figure]:
    answer = source.ask_study("loss_by_keys")
    rows = answer.rows()
    if not rows:
        return
    yield Figure(
        "loss-by-keys",
        "Loss with fewer keys",
        answer,
        describe_budgets(rows),
        "Policies with the same budget keep the same number of keys on average. Keys are those of the largest "
        "weights α, or those farthest off the mean, of the largest α‖v − v̄‖, where v̄ is the mean of the value "
        "states that a query sees. The weight of the rest goes to the keys kept (renormalised), to nothing "
        "(dropped), to v̄ (mean), or to the mean of the rest’s value states. N is the same for all heads, or by "
        "elbow, Recall or the keys of 90 % of the weight, or a share of each query’s weight; with a window, "
        "sink and recent keys are always among the N. All these see a query’s weights; those that know only past "
        "statistics of a head can be used at inference as they are. Grey with crosses: random controls, with "
        "shuffled budgets or random heads. Bands: 95 % intervals over "
        f"{count(rows[0]['sequences'], 'sequence')}. The paper names "
        "sparse attention as a use, without a figure.",
        charts=tuple(draw_loss_by_keys(rows, panel=panel) for panel in list_panels(rows)),
        titled=True,
    )
