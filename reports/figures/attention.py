"""Attention weights: the four phases (Assumption 3) and the sink."""

from reports.charts import attention as charts
from reports.figures.parts import NOT_ANALYSED, Figure, Section, Source, make_empty_figure, only_row
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
    key, title, answer = (
        "attention-by-position",
        "Attention weight by position",
        source.ask_query("attention_over_heads"),
    )
    if not answer.table.num_rows:
        return make_empty_figure(key, title, answer, NO_POSITIONS)
    fit = only_row(source.ask_query("weights_fit_of_model"))
    curve = source.ask_query("weights_fit_curve").table
    return Figure(
        key,
        title,
        numbers.join_sentences(findings.describe_attention(answer.rows(), source.query), findings.describe_phases(fit)),
        "Each head is first averaged over sequences; the fit is to the log of the weight. In the paper the weight of "
        "the sink is two orders of magnitude above that of other keys, the plateau extends to position 100, the "
        "oscillation to 800, and growth to the end.",
        answer,
        paper="Figure 4",
        tab="3: weights",
        marks="Line: mean over heads; band: middle 80 % of them; dashed: fit.",
        charts=(charts.attention(answer.table, curve, query=source.query, fit=fit),),
    )


def _build_variants(source: Source) -> Figure:
    key, title, answer = "weight-variants", "Phases of the heads", source.ask_query("weights_fit_by_head")
    if not answer.table.num_rows:
        return make_empty_figure(key, title, answer, NOT_ANALYSED)
    return Figure(
        key,
        title,
        findings.describe_weight_variants(answer.rows()),
        "Four variants of the phases are fitted to each head’s mean weight over sequences, and BIC chooses one. As "
        "printed in the paper, oscillation and growth share one η. The paper does not fit single heads.",
        answer,
        part=answer.table.select(FITTED),
        tab="3: weights",
        charts=(charts.weight_variants(answer.table),),
    )


def build_section(source: Source) -> Section:
    """What was found, and where in the model attention rests on the sink: with these the page begins."""
    return Section("summary", "Summary", "", (_build_sinks(source),))


def _build_sinks(source: Source) -> Figure:
    """Attention weight of each head on the sink, by layer."""
    key, title, answer = "sink-by-layer", "Attention on the sink by layer and head", source.ask_query("sink_by_head")
    table = answer.table.select(["layer", "head", "sink_weight", "uniform_weight"])
    rows: list[numbers.Row] = table.to_pylist()
    if not numbers.drop_nulls(rows, "sink_weight"):
        return make_empty_figure(key, title, answer, NO_SINK)
    reading = (
        "Heads are averaged over sequences. A large weight of position 0 need not mean a large contribution: a key "
        "contributes its weight times its value state."
    )
    return Figure(
        key,
        title,
        numbers.join_sentences(
            findings.describe_sink_by_layer(rows),
            findings.describe_learned_sinks(source.ask_query("learned_sinks").rows()),
        ),
        reading,
        answer,
        part=table,
        marks="Strokes: one head each; dots: mean of the layer with its 95 % interval over sequences; dashed: an equal "
        "share for every key.",
        charts=(charts.sink_map(table), charts.sink_by_layer(table, source.ask_study("layer_profiles").table)),
    )
