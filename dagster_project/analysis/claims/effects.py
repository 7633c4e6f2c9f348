"""Effects of heads: what the loss without a head or most of its keys goes with, and whether geometry finds budgets."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dagster_project.analysis.claims import queries
from dagster_project.analysis.claims.evidence import Evidence
from dagster_project.analysis.claims.records import Claim, Measure, Part, Samples, correlation
from dagster_project.analysis.claims.sink import explain_few_groups, make_sample
from geometry.arrays import F64, Bool
from geometry.statistics.arrangements import Association, associate, correlate_heads, rank_within
from geometry.statistics.intervals import estimate_mean
from geometry.statistics.verdicts import correct_holm

LEAST_LOSS = 0.01  # Smallest mean increase of the loss, in nats, that is worth an explanation

NO_EFFECTS = "the study has no effects"
"""Why a study without interventions tests none of these; such claims are left out of its page."""

CONTRASTS = {
    "elbow_less_same_n": ("elbow", "same_n", "N by elbow", "the same N for all heads"),
    "recall_less_same_n": ("recall", "same_n", "N by Recall", "the same N for all heads"),
    "elbow_less_n_90": ("elbow", "n_90", "N by elbow", "N by the keys that hold 90 % of the weight"),
    "recall_less_n_90": ("recall", "n_90", "N by Recall", "N by the keys that hold 90 % of the weight"),
    "mean_less_renormalised": (
        "same_n_mean",
        "same_n",
        "the rest's weight given to the mean value state",
        "the kept weights rescaled instead",
    ),
    "off_mean_less_weights": (
        "off_mean_mean",
        "same_n_mean",
        "keys by their distance off the mean",
        "keys by weight, the rest's weight given to the mean value state in both",
    ),
    "error_less_same_n": ("error", "same_n", "N by error", "the same N for all heads"),
    "error_less_mass": ("error", "mass", "N by error", "N of each query by a share of its weight"),
    "elbow_less_random": ("elbow", "random_budgets", "N by elbow", "these N in random order"),
    "full_by_elbow_less_random": (
        "full_heads_elbow",
        "full_heads_random",
        "all keys for heads of the largest elbows",
        "all keys for random heads",
    ),
}
"""For each measure a policy and the policy of equal cost that it is compared with, and both in words."""

LOSSES = """
    SELECT *
    FROM head_ablation_by_sequence
    WHERE kind = (SELECT arg_min(kind, (kind <> 'zero', kind)) FROM head_ablation)
"""
"""The losses by the first kind of replacement, zero if it was measured."""

ERROR = "error_renormalised_16"
"""The measure of ``head_measures`` that others are compared with: what keeping 16 keys leaves of a head's output."""

RIVALS = {"weight_left_out_16": "the weight left out", "effective_keys": "effective keys", "recall": "Recall"}
"""Measures of ``head_measures`` that need no error, and their names in sentences."""

GEOMETRY = (
    *(ERROR, "error_mean_16", "weight_left_out_16"),
    *("recall", "elbow", "retriever_score", "mixer_score", "reset_score", "rho_0", "effective_keys"),
)
"""Measures of heads, of ``head_measures``, that are correlated with the loss."""

MEASURES = {
    "recall_and_loss": correlation(
        "rank correlation over heads within layers of the mean over ln N of Recall and the loss that removing a head "
        "costs",
        "rank correlation",
    ),
    "error_and_loss": correlation(
        "rank correlation over heads within layers of the error of 16 keys and the loss that keeping those keys for "
        "one head alone costs",
        "rank correlation",
    ),
    **{
        f"error_ahead_of_{rival}": Measure(
            f"Fisher's z of the rank correlation of that loss with the error of 16 keys, minus that with {name}, in "
            "the direction in which this goes with the loss",
            f"Fisher’s z, minus that of {name}",
        )
        for rival, name in RIVALS.items()
    },
    **{
        name: Measure(
            f"mean over budgets of the loss with {one}, minus that with {other}, in nats", "difference in nats"
        )
        for name, (_, _, one, other) in CONTRASTS.items()
    },
}
MEASURES |= queries.pair_measures(MEASURES, "recall_and_loss")


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name; none without effects."""
    budgets = evidence.ask_means(
        f"""
        WITH losses AS (
            SELECT sequence, budget, policy, avg(loss) AS loss
            FROM sparsified_loss_by_sequence
            GROUP BY sequence, budget, policy
        ),
        contrasts (measure, policy, reference) AS (
            VALUES {", ".join(f"('{name}', '{one}', '{other}')" for name, (one, other, _, _) in CONTRASTS.items())}
        )
        SELECT of_policy.sequence AS sequence, measure,
            avg(of_policy.loss - of_reference.loss) AS value, count(*) AS rows
        FROM contrasts
        JOIN losses AS of_policy ON of_policy.policy = contrasts.policy
        JOIN losses AS of_reference
            ON of_reference.policy = reference
            AND of_reference.sequence = of_policy.sequence
            AND of_reference.budget = of_policy.budget
        GROUP BY of_policy.sequence, measure
        """
    )
    return {**budgets, **_measure_prediction(evidence), **_measure_error(evidence)}


def _measure_prediction(evidence: Evidence) -> Samples:
    """The associations of Recall with the loss, in the sequences in which heads were replaced."""
    columns = evidence.ask_heads(
        f"""
        SELECT sequence, layer, head, delta_loss, recall
        FROM ({LOSSES})
        JOIN (SELECT sequence, layer, head, recall FROM head_levels WHERE query = $query) USING (sequence, layer, head)
        """
    )
    known = _find_measured(columns["delta_loss"])
    if not known.any():
        return {}
    levels = {"": columns["recall"], queries.EVERY: queries.read_levels(evidence)["recall"]}
    associations = {
        f"recall_and_loss{end}": _associate_ranks(evidence, recall[known], columns["delta_loss"][known])
        for end, recall in levels.items()
    }
    return _place(associations, known)


def _measure_error(evidence: Evidence) -> Samples:
    """The association of the error of 16 keys with the loss of keeping them, and how far it is ahead of its rivals."""
    losses = _read_losses(evidence).get("selected")
    if losses is None:
        return {}
    known, measures = _find_measured(losses), _read_measures(evidence)
    error, of_losses = measures[ERROR][known], losses[known]
    return _place(
        {"error_and_loss": _associate_ranks(evidence, error, of_losses)}
        | {
            f"error_ahead_of_{rival}": _compare_ranks(evidence, error, measures[rival][known], of_losses)
            for rival in RIVALS
        },
        known,
    )


def _find_measured(losses: F64) -> Bool:
    """The sequences in which some head was replaced, (S,)."""
    return np.asarray(~np.isnan(losses).all(axis=1))


def _place(associations: Mapping[str, Association], known: Bool) -> Samples:
    """Associations in the sequences ``known`` as measures of all; none where a quantity does not vary."""
    samples = {}
    for name, association in associations.items():
        z = np.full(len(known), np.nan)
        z[known] = association.of_sequences
        if not np.isnan(z).all():
            samples[name] = replace(make_sample(association), of_sequences=z)
    return samples


def correlate_losses(evidence: Evidence) -> Iterator[dict[str, Any]]:
    """The rows of ``loss_associations``: measures of heads and the loss without them, within layers, by kind."""
    measures = _read_measures(evidence)
    rows = [
        {"kind": kind, "measure": name, **row}
        for kind, of_kind in _read_losses(evidence).items()
        for known in (_find_measured(of_kind),)
        for name in GEOMETRY
        if (row := _correlate_measure(evidence, measures[name][known], measures[ERROR][known], of_kind[known]))
    ]
    for name in ("p_holm", "error_ahead_p_holm"):
        tested = [row for row in rows if name in row]
        for row, corrected in zip(tested, correct_holm(row[name] for row in tested), strict=True):
            row[name] = corrected
    yield from rows


def _read_measures(evidence: Evidence) -> dict[str, F64]:
    """The measures of ``GEOMETRY``, (S, heads), the same in every sequence."""
    return evidence.ask_heads(
        f""" SELECT layer, head, {
            ", ".join(f"any_value(value) FILTER (WHERE measure = '{name}') AS {name}" for name in GEOMETRY)
        } FROM head_measures GROUP BY layer, head
        """
    )


def _read_losses(evidence: Evidence) -> dict[str, F64]:
    """By kind of replacement what it costs, (S, heads), in some sequences at least; NaN in others."""
    losses = evidence.ask_heads(
        """
        FROM (
            PIVOT (SELECT sequence, layer, head, kind, delta_loss FROM head_ablation_by_sequence)
            ON kind USING any_value(delta_loss)
        )
        """
    )
    return {kind: of_kind for kind, of_kind in losses.items() if not np.isnan(of_kind).all()}


def _associate_ranks(evidence: Evidence, values: F64, losses: F64) -> Association:
    """The rank correlation within layers of a measure and the loss, in the sequences that have both, (S, heads)."""
    layer, group = evidence.heads["layer"], evidence.heads["group"]
    return associate(rank_within(values, layer), rank_within(losses, layer), layer, group)


def _compare_ranks(evidence: Evidence, errors: F64, values: F64, losses: F64) -> Association:
    """That of the error minus that of a measure, in the direction in which the measure goes with the loss."""
    layer, group = evidence.heads["layer"], evidence.heads["group"]
    ranked, of_losses = rank_within(values, layer), rank_within(losses, layer)
    sign = np.sign(estimate_mean(associate(ranked, of_losses, layer, group).of_sequences).value)
    return associate(rank_within(errors, layer), of_losses, layer, group, less=sign * ranked)


def _correlate_measure(evidence: Evidence, values: F64, errors: F64, losses: F64) -> dict[str, Any]:
    """One row of ``loss_associations``, its p values not yet corrected; empty if there is no correlation."""
    association = _associate_ranks(evidence, values, losses)
    if np.isnan(association.of_sequences).any():
        return {}
    z = estimate_mean(association.of_sequences)
    everywhere = np.zeros_like(evidence.heads["layer"])
    over_all = correlate_heads(
        rank_within(values[:1], everywhere), rank_within(losses.mean(axis=0, keepdims=True), everywhere)
    )
    same = np.array_equal(values, errors, equal_nan=True)
    return {
        "heads": association.heads,
        "sequences": len(losses),
        **{end: float(np.tanh(value)) for end, value in z.name_ends("correlation").items()},
        "p": association.p,
        "p_holm": make_sample(association).compare(0.0, above=True).p,
        **({} if same else _test_difference(_compare_ranks(evidence, errors, values, losses))),
        "correlation_over_all": float(over_all[0]),
    }


def _test_difference(difference: Association) -> dict[str, float]:
    """The columns of ``loss_associations`` that say how far the error is ahead; none if that is not known."""
    if np.isnan(difference.of_sequences).any():
        return {}
    ends = estimate_mean(difference.of_sequences).name_ends("error_ahead")
    p = make_sample(difference).compare(0.0, above=True).p
    return {**{end: float(value) for end, value in ends.items()}, "error_ahead_p_holm": p}


def _explain_no_effects(evidence: Evidence, table: str) -> str | None:
    if not evidence.count(f"SELECT count(*) FROM {table}"):
        return NO_EFFECTS
    if not evidence.count(f"SELECT count(*) FROM {table} WHERE delta_loss >= {LEAST_LOSS}"):
        what = "head" if table == "head_ablation" else "policy"
        return f"no {what} costs {LEAST_LOSS} nats"
    return explain_few_groups(evidence) if table == "head_ablation" else None


def _explain_no_selected(evidence: Evidence) -> str | None:
    rows = "SELECT count(*) FROM head_ablation"
    if evidence.count(f"{rows} WHERE kind = 'selected'"):
        return explain_few_groups(evidence)
    return "the study keeps 16 keys of no head alone" if evidence.count(rows) else NO_EFFECTS


def _compare_budgets(name: str, statement: str, measure: str, clause: str) -> Claim:
    """A claim that budgets lose less, or heads need more; its denial says “no less”, “no more”."""
    return Claim(
        name,
        "Abstract",
        statement,
        (Part(measure, "<"),),
        clause,
        clause.replace(" less ", " no less ", 1).replace(" more than ", " no more than "),
        "loss-by-keys",
        null="the policy of equal cost that it is compared with: a difference from it",
        rows_of="budgets",
        least_rows=1,
        premise=f"effects (analysis.effects), and a policy that costs {LEAST_LOSS} nats",
        explain_gap=partial(_explain_no_effects, table="sparsified_loss"),
    )


CLAIMS = (
    Claim(
        "recall_predicts_loss",
        "Abstract",
        "Geometry explains what heads do: heads of high Recall cost more when they are removed",
        (Part("recall_and_loss", ">=", 0.3),),
        "heads of higher Recall cost more loss when they are removed",
        "heads of higher Recall do not cost more loss when they are removed",
        "loss-and-geometry",
        null="KV groups in random places of their layers: correlated within layers",
        least_rows=6,
        premise=f"effects (analysis.effects), and a head worth {LEAST_LOSS} nats",
        explain_gap=partial(_explain_no_effects, table="head_ablation"),
    ),
    Claim(
        "error_tells_loss",
        "Abstract",
        "Geometry knows more than weights: the error of a head's output tells best what keeping 16 keys there costs",
        (Part("error_and_loss", ">"), *(Part(f"error_ahead_of_{rival}", ">") for rival in RIVALS)),
        "the loss of keeping 16 keys in one head alone rises with the error of its output, and goes better with it "
        "than with the weight left out, effective keys or Recall",
        "the loss of keeping 16 keys in one head alone does not rise with the error of its output, or goes no better "
        "with it than with one of the weight left out, effective keys and Recall",
        "loss-and-error",
        null="KV groups in random places of their layers, and what is known without value states: correlated within "
        "layers, differences from it",
        least_rows=6,
        premise="effects (analysis.effects) of keeping 16 keys for one head alone (selected)",
        explain_gap=_explain_no_selected,
    ),
    _compare_budgets(
        "elbow_budgets_gain",
        "Geometry informs sparse attention: N by elbow loses less than one N for all",
        "elbow_less_same_n",
        "budgets by elbow lose less than the same N for all heads",
    ),
    _compare_budgets(
        "recall_budgets_gain",
        "Geometry informs sparse attention: N by Recall loses less than one N for all",
        "recall_less_same_n",
        "budgets by Recall lose less than the same N for all heads",
    ),
    _compare_budgets(
        "elbow_budgets_beat_mass",
        "Geometry knows more than weights: N by elbow loses less than N by the keys of 90 % of the weight",
        "elbow_less_n_90",
        "budgets by elbow lose less than budgets by the keys that hold 90 % of the weight",
    ),
    _compare_budgets(
        "recall_budgets_beat_mass",
        "Geometry knows more than weights: N by Recall loses less than N by the keys of 90 % of the weight",
        "recall_less_n_90",
        "budgets by Recall lose less than budgets by the keys that hold 90 % of the weight",
    ),
    _compare_budgets(
        "elbow_budgets_beat_random",
        "N by elbow loses less than the same numbers given to heads at random",
        "elbow_less_random",
        "budgets by elbow lose less than the same numbers given to heads at random",
    ),
    _compare_budgets(
        "reallocation_gains",
        "What is left out has a mean: giving it the rest's weight loses less than rescaling the kept weights",
        "mean_less_renormalised",
        "the same keys lose less with the rest's weight on the mean value state than with rescaled weights",
    ),
    _compare_budgets(
        "off_mean_gains",
        "Geometry informs which keys to keep: those of large α‖v − v̄‖ lose less than those of large α, the rest at v̄",
        "off_mean_less_weights",
        "keys far off the mean lose less than keys of large weight, with the rest's weight on the mean value state",
    ),
    _compare_budgets(
        "error_budgets_gain",
        "Geometry informs sparse attention: N by the error of a head's output loses less than one N for all",
        "error_less_same_n",
        "budgets by error lose less than the same N for all heads",
    ),
    _compare_budgets(
        "error_budgets_beat_mass",
        "Geometry knows more than weights: N by the error of a head's output loses less than by a share of weight",
        "error_less_mass",
        "budgets by error lose less than a share of the weight of each query",
    ),
    _compare_budgets(
        "elbow_chooses_full_heads",
        "The elbow tells which heads need all keys",
        "full_by_elbow_less_random",
        "heads of large elbows need all keys more than heads chosen at random",
    ),
)
