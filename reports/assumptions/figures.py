"""The three assumptions of the paper, and the weights on the sink."""

from reports.assumptions import charts, findings
from reports.figures import NOT_ANALYSED, Draft, Figure, Section, Source, only_row, select_rows
from reports.findings import numbers

NO_POSITIONS = "The warehouse holds no rows by position for this study."


def _build_value_norm(source: Source) -> Figure:
    draft = Draft("value-norm", "Norm of value states by position", source.ask_study("value_norm_over_heads"))
    if not draft.rows:
        return draft.leave_empty(NO_POSITIONS)
    heads = numbers.count(max(row["kv_heads"] for row in draft.rows), "KV head")
    return draft.show(
        findings.describe_value_norm(draft.rows),
        "Each KV head is first averaged over sequences. In the paper norms are level over positions except for the "
        "sink’s, which is smaller.",
        paper="Figure 2, left",
        tab="1: norms",
        marks=f"Line: mean of {heads}; band: middle 80 % of them.",
        charts=(charts.value_norm(draft.rows),),
    )


def _build_variation(source: Source) -> Figure:
    draft = Draft("norm-variation", "Variation of norms over KV heads", source.ask_study("norm_variation_by_head"))
    rows = draft.rows
    if not rows:
        return draft.leave_empty(NOT_ANALYSED)
    if not any(row["cv_of_mean_norm"] or row["cv_within_sequence"] for row in rows):
        return draft.leave_empty(findings.describe_norm_variation(rows))
    return draft.show(
        findings.describe_norm_variation(rows),
        "Coefficient of variation: standard deviation over mean, over all positions but the sink’s. "
        "The paper finds 0.02 to 0.03 and few above 0.05, which only the mean norm over sequences can show. Its "
        "variation shrinks with the square root of their number, so it reflects how many were averaged; only the "
        "variation within a sequence shows how stable norms are.",
        paper="Figure 2, right",
        tab="1: norms",
        charts=(charts.norm_variation(rows),),
    )


def _build_errors(source: Source) -> Figure:
    draft = Draft(
        "similarity-errors", "Error of the exponential over KV heads", source.ask_study("similarity_fit_by_head")
    )
    if not numbers.drop_nulls(draft.rows, "mae"):
        return draft.leave_empty(_explain_no_fit(source))
    return draft.show(
        findings.describe_similarity_errors(draft.rows),
        "Least-squares fits over distances of the mean cosine over sequences. In the paper the error is 0.09 on "
        "average, 0.05 to 0.10 in most heads and 0.20 to 0.25 in a few.",
        paper="Figure 3",
        tab="2: similarity",
        charts=(charts.similarity_errors(draft.rows),),
    )


def _explain_no_fit(source: Source) -> str:
    rows = source.ask_study("similarity_fit_by_head").rows()
    return findings.describe_similarity_errors(rows) if rows else NOT_ANALYSED


_WHICH = {"best": "Best fit", "median": "Median fit", "worst": "Worst fit"}


def _build_model(source: Source) -> Figure:
    draft = Draft("similarity-model", "Similarity against distance", source.ask_study("similarity_curves"))
    rows = [row for row in draft.rows if row["which"] == "model"]
    if not numbers.drop_nulls(rows, "mean_cosine"):
        return draft.leave_empty(_explain_no_fit(source))
    model = only_row(source.ask_study("assumption_similarity_model"))
    domain = numbers.find_span(draft.rows, charts.SIMILARITIES)
    return draft.show(
        numbers.join_sentences(
            findings.describe_similarity_curve(rows, "All KV heads"), findings.describe_model_similarity(model)
        ),
        "Mean cosine over pairs at that distance, over sequences and over KV heads, with both fits; in brackets: "
        "95 % intervals over sequences. The fit with a floor, c + (1 − c) exp(−β k), is not from the paper. ρ_0 is the "
        "mean cosine of the sink’s value state with the others, which the paper assumes to be constant.",
        part=select_rows(draft.table, "which", "model"),
        paper="Figure 3",
        tab="2: similarity",
        charts=(charts.similarity(rows, title=draft.title, domain=domain),),
    )


def _build_curves(source: Source) -> Figure:
    draft = Draft("similarity-heads", "Similarity in single KV heads", source.ask_study("similarity_curves"))
    of_heads: dict[str, tuple[str, list[numbers.Row]]] = {}  # each KV head once
    for which, words in _WHICH.items():
        rows = [row for row in draft.rows if row["which"] == which]
        if numbers.drop_nulls(rows, "mean_cosine"):
            name = f"layer {rows[0]['layer']}, KV head {rows[0]['kv_head']}"
            of_heads.setdefault(name, (f"{words}: {name}", rows))
    if not of_heads:
        return draft.leave_empty(_explain_no_fit(source))
    domain, curves = numbers.find_span(draft.rows, charts.SIMILARITIES), of_heads.values()
    return draft.show(
        numbers.join_sentences(*(findings.describe_similarity_curve(rows, title) for title, rows in curves)),
        "KV heads are ranked by the mean absolute error of the exponential; the axes are the same for all. In Section "
        "3.2 of the paper the exponential follows the curves of most heads.",
        part=select_rows(draft.table, "which", *_WHICH),
        paper="Figure 3",
        tab="2: similarity",
        charts=tuple(charts.similarity(rows, title=title, domain=domain) for title, rows in curves),
    )


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


def _build_attention(source: Source) -> Figure:
    draft = Draft("attention-by-position", "Attention weight by position", source.ask_query("attention_over_heads"))
    if not draft.rows:
        return draft.leave_empty(NO_POSITIONS)
    fit = only_row(source.ask_query("assumption_weights_model"))
    curve = source.ask_query("weights_fit_curve").rows()
    return draft.show(
        numbers.join_sentences(findings.describe_attention(draft.rows, source.query), findings.describe_phases(fit)),
        "Each head is first averaged over sequences; the fit is to the log of the weight. In the paper the weight of "
        "the sink is two orders of magnitude above that of other keys, the plateau extends to position 100, the "
        "oscillation to 800, and growth to the end.",
        paper="Figure 4",
        tab="3: weights",
        marks="Line: mean over heads; band: middle 80 % of them; dashed: fit.",
        charts=(charts.attention(draft.rows, curve, query=source.query, fit=fit),),
    )


def _build_variants(source: Source) -> Figure:
    draft = Draft("weight-variants", "Phases of the heads", source.ask_query("assumption_weights"))
    if not draft.rows:
        return draft.leave_empty(NOT_ANALYSED)
    return draft.show(
        findings.describe_weight_variants(draft.rows),
        "Four variants of the phases are fitted to each head’s mean weight over sequences, and BIC chooses one. As "
        "printed in the paper, oscillation and growth share one η. The paper does not fit single heads.",
        part=draft.table.select(FITTED),
        tab="3: weights",
        charts=(charts.weight_variants(draft.rows),),
    )


def build_sinks(source: Source) -> Section:
    """What was found, and where in the model attention rests on the sink: with these the page begins."""
    return Section("summary", "Summary", "", (_build_sinks(source),))


def _build_sinks(source: Source) -> Figure:
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
        charts=(charts.sink_map(rows), charts.sink_by_layer(rows, source.ask_study("layer_profiles").rows())),
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
