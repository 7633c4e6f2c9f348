"""How heads that look at a known pattern differ from the others, in kind, geometry and worth."""

from dagster_project.analysis.claims.effects import LOSSES
from dagster_project.analysis.claims.evidence import Evidence
from dagster_project.analysis.claims.records import Claim, Measure, Part, Samples
from geometry.statistics.intervals import DIFFERENCE, UNBOUNDED

QUANTITIES = {
    "recall": ("mean over ln N of Recall", DIFFERENCE),
    "specificity": ("mean over ln N of specificity", DIFFERENCE),
    "auc": ("mean over ln N of AUC", DIFFERENCE),
    "rho_0": ("ρ_0 of the head's KV head", UNBOUNDED),
    "effective_keys": ("effective keys", UNBOUNDED),
    "loss": ("the loss that removing the head costs, in nats", UNBOUNDED),
    **{kind.lower(): (f"share of {kind} heads", DIFFERENCE) for kind in ("Retriever", "Mixer", "Reset", "Other")},
}
"""What heads are compared in, and the domain of a difference."""

MEASURES = {
    f"{name}_by_label": Measure(
        f"{what}: mean over the heads with a label of head_labels, minus that over all other heads",
        f"{what}, minus elsewhere",
        domain,
    )
    for name, (what, domain) in QUANTITIES.items()
}
"""One for each label that some heads have and some have not, which follows its name in brackets."""


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name; none without a head that has a label."""
    return evidence.ask_means(
        f"""
        WITH numbers AS (
            SELECT
                sequence, layer, head, recall, specificity, auc, rho_0::DOUBLE AS rho_0,
                effective_keys::DOUBLE AS effective_keys, delta_loss AS loss,
                {", ".join(f"(kind = '{name.title()}')::DOUBLE AS {name}" for name in list(QUANTITIES)[-4:])}
            FROM head_levels
            JOIN heads USING (layer, head)
            JOIN value_scales USING (sequence, query, layer, kv_head)
            LEFT JOIN head_auc USING (sequence, query, layer, head)
            LEFT JOIN attention_rows USING (sequence, query, layer, head)
            LEFT JOIN (SELECT * EXCLUDE (label), label AS kind FROM kinds_by_sequence)
                USING (sequence, query, layer, head)
            LEFT JOIN (SELECT sequence, layer, head, delta_loss FROM ({LOSSES})) USING (sequence, layer, head)
            WHERE query = $query
        ),
        quantities AS (
            UNPIVOT numbers ON COLUMNS(* EXCLUDE (sequence, layer, head)) INTO NAME quantity VALUE value
        ),
        labelled AS (SELECT label, layer, head, true AS has FROM head_labels)
        SELECT
            sequence, quantity || '_by_label[' || label || ']' AS measure,
            avg(value) FILTER (WHERE has) - avg(value) FILTER (WHERE has IS NULL) AS value,
            count(*) FILTER (WHERE has) AS rows
        FROM quantities
        CROSS JOIN (SELECT DISTINCT label FROM labelled)
        LEFT JOIN labelled USING (label, layer, head)
        GROUP BY sequence, quantity, label
        """
    )


def _explain_no_contrast(evidence: Evidence) -> str | None:
    resting = evidence.count("SELECT count(*) FROM head_labels WHERE label = 'sink'")
    if 0 < resting < len(evidence.heads["layer"]):
        return None
    return f"{'every' if resting else 'no'} head gives most of its weight to the sink"


CLAIMS = (
    Claim(
        "resets_look_at_sink",
        "Section 4.2",
        "Reset heads are those biased to the sink",
        (Part("reset_by_label[sink]", ">"),),
        "heads that give most of their weight to the sink are Reset heads more often than the others",
        "heads that give most of their weight to the sink are Reset heads no more often than the others",
        "kinds-patterns",
        null="labels of other heads: a difference from them",
        premise="a head that gives most of its weight to the sink, and one that does not",
        explain_gap=_explain_no_contrast,
    ),
)
