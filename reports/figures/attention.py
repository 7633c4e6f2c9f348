"""Attention weights: the four phases (Assumption 3) and the sink."""

from reports.charts import attention as charts
from reports.figures.parts import NOT_ANALYSED, Draft, Figure, Section, Source, only_row
from reports.figures.values import NO_POSITIONS
from reports.findings import attention as findings
from reports.findings import numbers

FITTED = [
    "layer",
    "head",
    "status",
    "variant",
    "p_sink",
    "p_base",
    "eta",
    "eta_growth",
    "omega",
    "t_1",
    "t_2",
    "r2_log",
]
"""Columns of the fit by head that the table shows; the query also has errors and criteria."""

NO_SINK = "A sliding window hides position 0 from every head, so no head can attend to the sink."


def build_weights(source: Source) -> tuple[Figure, ...]:
    """Assumption 3."""
    return (_build_attention(source), _build_variants(source))


def _build_attention(source: Source) -> Figure:
    draft = Draft("attention-by-position", "Attention weight by position", source.ask_query("attention_over_heads"))
    if not draft.table.num_rows:
        return draft.leave_empty(NO_POSITIONS)
    fit = only_row(source.ask_query("assumption_weights_model"))
    curve = source.ask_query("weights_fit_curve").table
    return draft.show(
        numbers.join_sentences(findings.describe_attention(draft.rows, source.query), findings.describe_phases(fit)),
        "Each head is first averaged over sequences; the fit is to the log of the weight. In the paper the weight of "
        "the sink is two orders of magnitude above that of other keys, the plateau extends to position 100, the "
        "oscillation to 800, and growth to the end.",
        paper="Figure 4",
        tab="3: weights",
        marks="Line: mean over heads; band: middle 80 % of them; dashed: fit.",
        charts=(charts.attention(draft.table, curve, query=source.query, fit=fit),),
    )


def _build_variants(source: Source) -> Figure:
    draft = Draft("weight-variants", "Phases of the heads", source.ask_query("assumption_weights"))
    if not draft.table.num_rows:
        return draft.leave_empty(NOT_ANALYSED)
    return draft.show(
        findings.describe_weight_variants(draft.rows),
        "Four variants of the phases are fitted to each head’s mean weight over sequences, and BIC chooses one. As "
        "printed in the paper, oscillation and growth share one η. The paper does not fit single heads.",
        part=draft.table.select(FITTED),
        tab="3: weights",
        charts=(charts.weight_variants(draft.table),),
    )


def build_section(source: Source) -> Section:
    """What was found, and where in the model attention rests on the sink: with these the page begins."""
    return Section("summary", "Summary", "", (_build_sinks(source),))


def _build_sinks(source: Source) -> Figure:
    """Attention weight of each head on the sink, by layer."""
    draft = Draft("sink-by-layer", "Attention on the sink by layer and head", source.ask_query("sink_by_head"))
    table = draft.table.select(["layer", "head", "sink_weight", "uniform_weight"])
    rows: list[numbers.Row] = table.to_pylist()
    if not numbers.drop_nulls(rows, "sink_weight"):
        return draft.leave_empty(NO_SINK)
    reading = (
        "Heads are averaged over sequences. A large weight of position 0 need not mean a large contribution: a key "
        "contributes its weight times its value state."
    )
    return draft.show(
        numbers.join_sentences(
            findings.describe_sink_by_layer(rows),
            findings.describe_learned_sinks(source.ask_query("learned_sinks").rows()),
        ),
        reading,
        part=table,
        marks="Strokes: one head each; dots: mean of the layer with its 95 % interval over sequences; dashed: an equal "
        "share for every key.",
        charts=(charts.sink_map(table), charts.sink_by_layer(table, source.ask_study("layer_profiles").table)),
    )
