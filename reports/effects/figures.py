"""What heads do: the model without each head, and with fewer keys.

A figure without rows is left out, and so is the section if all are: most studies do not ask for effects.
"""

from collections.abc import Sequence

from reports.effects import charts, findings
from reports.figures import Figure, Section, Source
from reports.findings import numbers
from reports.queries import Answer

ROWS = 48
"""Number of heads in the table of the dot plots, those of largest increase; the table of the maps has all."""


def build_sections(source: Source) -> tuple[Section, ...]:
    """What heads do; no section for a study that does not ask for effects."""
    drawn = (*_build_ablation(source), *_build_budgets(source))
    if not drawn:
        return ()
    lead = (
        "Geometry describes heads; how much does the model depend on them? The model is run again with the output of "
        "one head replaced, before the output projection, and with fewer keys for every query. Losses are next-token "
        "cross entropy in nats, compared with the same sequences without intervention; budgets are computed on the "
        "study’s sequences, and their losses on others."
    )
    return (Section("effects", "What heads do", lead, drawn),)


def _build_ablation(source: Source) -> tuple[Figure, ...]:
    answer = source.ask_study("ablation_by_head")
    rows = answer.rows()
    if not rows:
        return ()
    associations = source.ask_study("loss_associations")
    correlations = [row for row in associations.rows() if row["kind"] == rows[0]["kind"]]
    sequences = numbers.count(rows[0]["sequences"], "sequence")
    maps = Figure(
        "loss-by-head",
        "Loss without each head",
        findings.describe_ablation(rows),
        f"Mean over {sequences} of the study; the colours of losses and effective keys are on a log scale. The other "
        "maps show the kind, the effective number of keys and the Recall (mean over ln N) of the same heads. The "
        "paper removes no head.",
        answer,
        charts=(
            charts.loss_map(rows),
            *([charts.kind_map(rows)] if numbers.drop_nulls(rows, "label") else []),
            *(
                charts.measure_map(rows, measure=measure)
                for measure in ("effective_keys", "recall")
                if numbers.drop_nulls(rows, measure)
            ),
        ),
        titled=True,
    )
    if not correlations:
        return (maps,)
    scatter = Figure(
        "loss-and-geometry",
        "Loss without a head and its geometry",
        findings.describe_correlations(correlations),
        "One dot per head, coloured by its kind; the titles give rank correlations over heads within layers, since "
        "depth moves both, with intervals over sequences and the p value of exchanging KV groups within layers. "
        "Measures are means over all sequences; the claim about Recall takes that of the sequence in which the loss is "
        f"measured. The table has the {ROWS} heads of largest increase; its SQL returns all of them. The paper hopes "
        "for such a relation but does not test it.",
        answer,
        part=answer.table.sort_by([("delta_loss", "descending")]).slice(0, ROWS),
        whole=answer.table,
        charts=tuple(charts.loss_scatter(rows, measure=row["measure"], correlation=row) for row in correlations),
        listing=findings.tabulate_correlations(correlations),
    )
    return maps, scatter, *_build_error(source, rows, associations)


def _build_error(source: Source, heads: Sequence[numbers.Row], associations: Answer) -> tuple[Figure, ...]:
    """Whether the loss of keeping 16 keys goes with what they leave of the head's output, in the words of the claim."""
    rows = [row for row in associations.rows() if row["kind"] == "selected"]
    shown = [row for row in rows if row["measure"] in {findings.ERROR, "weight_left_out_16"}]
    if findings.ERROR not in {row["measure"] for row in shown}:
        return ()
    (claim,) = (row for row in source.ask_study("claims").rows() if row["claim"] == "error_tells_loss")
    return (
        Figure(
            "loss-and-error",
            "Loss with 16 keys for one head, and the error they leave",
            claim["sentence"],
            "One dot per head, which alone keeps the 16 keys of largest weight of every query, renormalised. Error: "
            "what that leaves of its output at the last query, over its norm: the weight left out times the distance "
            "between the means of the value states left out and kept (arXiv 2512.07647). Ahead: Fisher’s z of the rank "
            "correlation with the error, minus that with the measure, in the direction in which the measure goes with "
            "the loss. The paper has no such figure.",
            associations,
            charts=tuple(charts.loss_scatter(heads, measure=row["measure"], correlation=row) for row in shown),
            listing=findings.tabulate_error(rows),
        ),
    )


def _build_budgets(source: Source) -> tuple[Figure, ...]:
    answer = source.ask_study("loss_by_keys")
    rows = answer.rows()
    if not rows:
        return ()
    return (
        Figure(
            "loss-by-keys",
            "Loss with fewer keys",
            findings.describe_budgets(rows),
            "Policies with the same budget keep the same number of keys on average. Keys are those of the largest "
            "weights α, or those farthest off the mean, of the largest α‖v − v̄‖, where v̄ is the mean of the value "
            "states that a query sees. The weight of the rest goes to the keys kept (renormalised), to nothing "
            "(dropped), to v̄ (mean), or to the mean of the rest’s value states. N is the same for all heads, or by "
            "elbow, Recall or the keys of 90 % of the weight, or a share of each query’s weight; with a window, "
            "sink and recent keys are always among the N. All these see a query’s weights; those that know only past "
            "statistics of a head can be used at inference as they are. Grey with crosses: random controls, with "
            "shuffled budgets or random heads. Bands: 95 % intervals over "
            f"{numbers.count(rows[0]['sequences'], 'sequence')}. The paper names "
            "sparse attention as a use, without a figure.",
            answer,
            charts=tuple(charts.loss_by_keys(rows, panel=panel) for panel in charts.list_panels(rows)),
            titled=True,
        ),
    )
