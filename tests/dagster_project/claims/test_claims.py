"""Each claim of the paper has a made-up model that supports it, one that does not, and one that cannot test it."""

import importlib
import json
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from dagster_project.analysis.claims.evidence import Evidence
from dagster_project.analysis.claims.judging import (
    CLAIMS,
    SUBJECTS,
    Judgement,
    Requirement,
    compare_part,
    correct_claims,
    count_needed,
    decide_claims,
    judge_claim,
    settle_claims,
    subtract_twin,
)
from dagster_project.analysis.claims.records import Part, Samples
from geometry.statistics import arrangements
from geometry.statistics.arrangements import Arrangements
from tests.dagster_project.claims.judged import NOTHING
from tests.dagster_project.claims.made_up import (
    HEADS,
    LABELS,
    LAYERS,
    POLICIES,
    SEQUENCES,
    THIRD_OF_N,
    N,
    Tables,
    make_evidence,
    make_tables,
)

BY_NAME = {claim.name: claim for claim in CLAIMS}
SUBJECT_OF = {claim.name: subject.__name__ for subject in SUBJECTS for claim in subject.CLAIMS}

Changed = dict[str, Any]  # How a made-up model differs from one that confirms the paper

REVERSED: Changed = {"labels": LABELS[::-1]}
NO_SINK: Changed = {"sink_times": 1.0}
FEW: Changed = {"sequences": 3}
WEAKER_SINK: Changed = {"slope": -1.0}
NO_NULLS: Changed = {"over_chance": None}
NO_THIRDS: Changed = {"thirds": None}
NO_BOUNDS: Changed = {"coverage_rows": (60, 5)}
REVERSED_ABOVE_RANDOM: Changed = {"above_random": (-0.1, 0.1, 0.1)}
NO_LOWER_BOUNDS: Changed = {"lower_rows": 2}
WORSE: Changed = {"gain": -0.2}
NO_LOSS: Changed = {"loss": 0.001}

LATER_RETRIEVERS: Changed = {"labels": ["OOOOOOOO"] * 2 + ["TTTTOOOO"] * 78}

DEEPER: dict[str, Changed] = {
    "resets_early": {"layers": 24},
    "retrievers_first": {"layers": 80, "labels": ["TTTTOOOO"] * 2 + ["OOOOOOOO"] * 78},
    "kinds_in_order": {"layers": 24},
}
"""Models of so many layers that a change with depth is rare among layers in random order."""

BY_CONSTRUCTION = {"norms_stable"}  # Claims that hold for any model, and are never supported

CASES: dict[str, tuple[Changed, Changed, str]] = {
    "selection_sharpens": ({"over_chance": {"recall": 0.3, "specificity": 0.1, "auc": -0.1}}, NO_NULLS, "no nulls"),
    "values_sharpen": ({"over_chance": {"recall": 0.3, "specificity": -0.1, "auc": 0.2}}, NO_NULLS, "no nulls"),
    "small_n_strongest": (REVERSED_ABOVE_RANDOM, NO_NULLS, "no nulls"),
    "intermediate_weakest": (REVERSED_ABOVE_RANDOM, NO_NULLS, "no nulls"),
    "distinguishable_share_settles": ({"thirds": (0.92, 0.74, 0.95)}, NO_THIRDS, "fewer than three values of N"),
    "sink_raises_recall": (WEAKER_SINK, NO_SINK, "the uniform share in 0 of 48 heads, and 24 are needed"),
    "sink_effect_peaks_early": ({"first_noise": 0.15, "later_noise": 0.02}, NO_SINK, "in 0 of 48 heads"),
    "sink_predicts_recall": ({"slope": 0.0}, {"groups": 1}, "arranged within layers in 1 way, 1000 are needed"),
    "sink_predicts_precision": (WEAKER_SINK, NO_SINK, "in 0 of 48 heads"),
    "sink_widens_r_min": (WEAKER_SINK, NO_SINK, "in 0 of 48 heads"),
    "norms_stable_within_sequence": ({"variation": 0.2}, FEW, "3 sequences measured, 4 are needed"),
    "sink_compressed": ({"sink_norm": 1.0}, NO_SINK, "10 times the uniform share in 0 of 48 heads"),
    "similarity_decays_exponentially": ({"mae": 0.2}, {"neighbours": 0.01}, "mean cosine of 0.1 in 0 of 24 KV heads"),
    "similarity_decays_to_zero": ({"floor": 0.2}, {"neighbours": 0.01}, "mean cosine of 0.1 in 0 of 24 KV heads"),
    "sink_dominates": ({"sink_over_plateau": 50}, {"fitted": False}, "no fit"),
    "four_phases": ({"oscillation": -0.1}, {"fitted": False}, "no fit"),
    "phases_fit": ({"r2": 0.5}, {"fitted": False}, "no fit"),
    "premise_holds": ({"premise_share": 0.2}, FEW, "3 sequences measured, 4 are needed"),
    "precision_covered": ({"covered": (0.5, 0.8)}, NO_BOUNDS, "60 pairs of head and N .* 100 are needed"),
    "recall_covered": ({"covered": (0.5, 0.8)}, NO_BOUNDS, "60 pairs of head and N .* 100 are needed"),
    "precision_enveloped": ({"covered": (0.5, 0.8)}, NO_BOUNDS, "less than half of what is possible"),
    "recall_enveloped": ({"covered": (0.5, 0.8)}, NO_BOUNDS, "less than half of what is possible"),
    "upper_tight": ({"upper_distance": 0.3}, FEW, "3 sequences measured, 4 are needed"),
    "lower_conservative": ({"lower_excess": -0.2}, NO_LOWER_BOUNDS, "what is possible at 2 N, 10 are needed"),
    "regimes_fit": ({"labels": ["TRMOOOOO"]}, FEW, "3 sequences measured, 4 are needed"),
    "resets_early": (REVERSED, {"layers": 1}, "1 layers with attention, 2 are needed"),
    "mixers_prevail_deep": (REVERSED, {"layers": 1}, "1 layers with attention, 2 are needed"),
    "retrievers_first": (LATER_RETRIEVERS, {"labels": ["RRRRMMMM"]}, "no head is Retriever in any sequence"),
    "kinds_in_order": (REVERSED, {"labels": ["TTTTMMMM"]}, "no head is Reset in any sequence"),
    "resets_look_at_sink": ({"resting": "Mixer"}, {"resting": ""}, "no head gives most of its weight to the sink"),
    "margin_positive_early": ({"positive": 0.1}, {"regimes": ["IV"]}, "no head has a regime II"),
    "last_query_like_others": ({"last_apart": 0.1}, {"last_apart": None}, "no every_query"),
    "recall_predicts_loss": ({"worth": -1.0}, NO_LOSS, "no head costs 0.01 nats"),
    "error_tells_loss": ({"worth_of_error": -1.0}, {"effects": False}, "no effects"),
    "elbow_budgets_gain": (WORSE, NO_LOSS, "no policy costs 0.01 nats"),
    "recall_budgets_gain": (WORSE, NO_LOSS, "no policy costs 0.01 nats"),
    "elbow_budgets_beat_mass": (WORSE, NO_LOSS, "no policy costs 0.01 nats"),
    "recall_budgets_beat_mass": (WORSE, {"effects": False}, "no effects"),
    "elbow_budgets_beat_random": (WORSE, {"effects": False}, "no effects"),
    "reallocation_gains": (WORSE, NO_LOSS, "no policy costs 0.01 nats"),
    "off_mean_gains": (WORSE, NO_LOSS, "no policy costs 0.01 nats"),
    "error_budgets_gain": (WORSE, {"effects": False}, "no effects"),
    "error_budgets_beat_mass": (WORSE, {"effects": False}, "no effects"),
    "elbow_chooses_full_heads": (WORSE, {"effects": False}, "no effects"),
}
"""For each claim what makes a model refute it, and what leaves nothing to test it on, and why."""


@cache
def _make_evidence(changed: str) -> Evidence:
    return make_evidence(make_tables(**json.loads(changed)))


@cache
def _measure(changed: str, subject: str) -> Samples:
    found: Samples = importlib.import_module(subject).measure(_make_evidence(changed))
    return {**found, **subtract_twin(found, NOTHING)}


def judge(name: str, changed: Changed | None = None) -> Judgement:
    """Test a claim on a made-up model."""
    key = json.dumps(changed or {})
    return judge_claim(BY_NAME[name], _make_evidence(key), _measure(key, SUBJECT_OF[name]))


def decide(judged: Judgement) -> str:
    """The verdict, at the level that Holm's correction for all claims starts with."""
    if judged.reason is not None:
        return "not testable"
    return judged.sides.side if judged.sides.p <= 0.05 / len(CLAIMS) else "undecided"


def test_every_claim_has_its_cases() -> None:
    assert set(CASES) | BY_CONSTRUCTION == set(BY_NAME)
    assert len(BY_NAME) == len(CLAIMS)


@pytest.mark.parametrize("name", CASES)
def test_a_claim_can_be_supported_fail_and_not_be_tested(name: str) -> None:
    refuting, silent, reason = CASES[name]
    depth = DEEPER.get(name, {})
    assert decide(judge(name, depth)) == "supported"
    assert decide(judge(name, depth | refuting)) == "not supported"
    untested = judge(name, silent)
    assert decide(untested) == "not testable"
    assert re.search(reason, str(untested.reason))


def test_too_few_rows_or_sequences_are_not_tested() -> None:
    claim, found = BY_NAME["selection_sharpens"], judge("selection_sharpens")
    samples = {part.measure: sample for part, sample, _ in found.parts}
    few = {measure: replace(sample, rows=claim.least_rows - 1) for measure, sample in samples.items()}
    assert judge_claim(claim, _make_evidence("{}"), few).reason == (
        f"it needs {claim.least_rows} {claim.rows_of} and has {claim.least_rows - 1}"
    )
    short = {
        measure: replace(sample, of_sequences=np.append(sample.of_sequences[:3], [np.nan] * (SEQUENCES - 3)))
        for measure, sample in samples.items()
    }
    assert judge_claim(claim, _make_evidence("{}"), short).reason == "3 sequences measured, 4 are needed"


def test_a_claim_without_one_of_its_measures_is_not_tested() -> None:
    """Unless its measures are alternatives, of which one is enough."""
    evidence, samples = _make_evidence("{}"), dict(_measure("{}", SUBJECT_OF["selection_sharpens"]))
    del samples["auc_over_random"]
    assert judge_claim(BY_NAME["selection_sharpens"], evidence, samples).reason == "the study has no auc_over_random"
    covered = dict(_measure("{}", SUBJECT_OF["recall_covered"]))
    del covered["recall_covered[0.5]"]
    assert judge_claim(BY_NAME["recall_covered"], evidence, covered).reason is None


def test_heads_that_cannot_be_mixers_do_not_speak_against_them() -> None:
    """A window hides the sink from layers of other heads; counted too, they would refute the claim."""
    claim = BY_NAME["mixers_prevail_deep"]
    said = {"supported": claim.clause, "not supported": claim.denial, "not testable": "nothing"}
    labels = [*LABELS[:3], "OOOOOOOO", "OOOOOOOO", "MMMMMMMM"]
    counted, left_out, hidden = (
        judge(claim.name, {"labels": labels, "hidden": hidden}) for hidden in ([], [3, 4], [3, 4, 5])
    )
    assert said[decide(counted)] == "Mixers do not prevail in the upper half of the layers"
    assert said[decide(left_out)] == "Mixers prevail in the upper half of the layers"
    assert (decide(hidden), hidden.reason) == (
        "not testable",
        "a window hides the sink from all heads of the upper half of the layers",
    )


class TestParts:
    """Conjunctions, alternatives, and associations."""

    def test_one_part_that_fails_refutes_a_conjunction(self) -> None:
        found = judge("selection_sharpens", CASES["selection_sharpens"][0])
        failing = [part.measure for part, _, sides in found.parts if sides.side != "supported"]
        assert failing == ["auc_over_random", "auc_over_random_beyond_random_weights"]
        assert found.sides.supports == max(sides.supports for _, _, sides in found.parts)
        assert found.sides.opposes == pytest.approx(6 * min(sides.opposes for _, _, sides in found.parts))

    def test_one_kappa_supports_a_claim_about_bounds(self) -> None:
        found = judge("recall_covered")
        assert [(part.measure, sides.side) for part, _, sides in found.parts] == [
            ("recall_covered[0.5]", "not supported"),
            ("recall_covered[2]", "supported"),
        ]

    def test_an_association_must_be_beyond_what_arrangements_give(self) -> None:
        """However well the sequences agree."""
        found = judge("sink_predicts_recall").parts[0]
        part, sample, sides = found
        assert sample.arranged is not None
        assert sides.supports < 0.001
        drawn = Arrangements(lambda _, draws: (int(0.3 * draws), int(0.8 * draws)), "24 KV groups", 1e6)
        unlucky = replace(sample, arranged=drawn)
        assert compare_part(part, unlucky).supports == pytest.approx(0.3, abs=1e-4)
        assert compare_part(part, unlucky).opposes == sides.opposes  # its threshold is not 0
        against_zero, falling = Part("sink_and_precision", ">"), replace(unlucky, of_sequences=-sample.of_sequences)
        assert compare_part(against_zero, replace(falling, arranged=None)).opposes < 0.001
        assert compare_part(against_zero, falling).opposes == pytest.approx(0.8, abs=1e-4)

    def test_a_verdict_that_is_left_to_luck_is_undecided_with_its_p_value(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(arrangements, "MOST_DRAWS", arrangements.FIRST_DRAWS)
        found = judge("sink_predicts_recall")
        part, sample, _ = found.parts[0]
        drawn = Arrangements(lambda _, draws: (int(0.0245 * draws), draws), "24 KV groups", 1e6)
        parts = ((part, replace(sample, arranged=drawn), compare_part(part, sample)),)
        edge = replace(found, parts=parts).test_again()
        name = found.claim.name
        assert decide_claims([edge])[name] == "supported", "by the share that was drawn"
        settled = settle_claims([edge])
        assert decide_claims(settled)[name] == "undecided"
        assert correct_claims(settled)[name] > 0.05
        assert count_needed(settled[0], 0.025) == Requirement(limited_by="24 KV groups")


def test_measures_are_those_of_the_arrays() -> None:
    """Read again from the rows of the made-up model, with NumPy, without SQL."""
    tables = make_tables()
    samples = {name: one for subject in SUBJECTS for name, one in _measure("{}", subject.__name__).items()}
    expected = {
        "sink_weight": by_sequence(tables, "attention_rows", "sink_weight").mean(axis=1),
        "rho_0_of_keys": by_sequence(tables, "value_scales", "rho_0").mean(axis=1),
        "lambda_sink": np.median(by_sequence(tables, "assumption_norms_by_sequence", "lambda_sink"), axis=1),
        "similarity_floor": by_sequence(tables, "assumption_similarity_by_sequence", "floor").mean(axis=1),
        "premise_share": by_sequence(tables, "head_levels", "premise_share").mean(axis=1),
    }
    label = by_sequence(tables, "kinds_by_sequence", "label").reshape(SEQUENCES, LAYERS, HEADS)
    for name, kind, early, late, sign in (
        ("retriever_early", "Retriever", slice(0, 2), slice(4, 6), 1),
        ("reset_early", "Reset", slice(0, 3), slice(3, 6), 1),
        ("mixer_late", "Mixer", slice(0, 2), slice(4, 6), -1),
        ("retriever_first_two", "Retriever", slice(0, 2), slice(2, 6), 1),
    ):
        shares = [(label[:, layers] == kind).mean(axis=(1, 2)) for layers in (early, late)]
        expected[name] = sign * (shares[0] - shares[1])
    resting = np.reshape(tables["head_pattern_means"]["share_low"], (LAYERS, HEADS)) >= 0.4
    recall = by_sequence(tables, "head_levels", "recall").reshape(label.shape)
    for name, of_heads in {"reset": label == "Reset", "recall": recall, "auc": recall**2}.items():
        expected[f"{name}_by_label[sink]"] = of_heads[:, resting].mean(axis=1) - of_heads[:, ~resting].mean(axis=1)
    expected["other_share"] = (label == "Other").mean(axis=(1, 2))
    of_policies = by_sequence(tables, "sparsified_loss_by_sequence", "loss").reshape(SEQUENCES, len(POLICIES), 2)
    loss = dict(zip(POLICIES, of_policies.mean(axis=2).T, strict=True))
    expected["elbow_less_same_n"] = loss["elbow"] - loss["same_n"]
    expected["elbow_less_n_90"] = loss["elbow"] - loss["n_90"]
    expected["recall_less_n_90"] = loss["recall"] - loss["n_90"]
    expected["mean_less_renormalised"] = loss["same_n_mean"] - loss["same_n"]
    expected["off_mean_less_weights"] = loss["off_mean_mean"] - loss["same_n_mean"]
    over = tables["separability_by_sequence"]["value"].reshape(SEQUENCES, 2, 3, N.size)[:, 0, 0, 1:] - 0.5
    edges = np.log([1.5, *np.sqrt(N[1:-1] * N[2:]), 63.5])  # N from 2 on
    weights, third = np.diff(edges), THIRD_OF_N[1:]
    expected["recall_over_random"] = over @ weights / weights.sum()
    thirds = [over[:, third == place] @ weights[third == place] / weights[third == place].sum() for place in range(3)]
    expected |= {"recall_first_over_middle": thirds[0] - thirds[1], "recall_first_over_last": thirds[0] - thirds[2]}
    for name, values in expected.items():
        np.testing.assert_allclose(samples[name].of_sequences, values, rtol=1e-6, atol=1e-8, err_msg=name)
        assert samples[name].whole is None
    left_out = tables["assumption_weights_by_sequence"]
    whole = {"sink_over_plateau": np.log(tables["assumption_weights_model"]["p_sink"][0] * 1000)}
    without = {"sink_over_plateau": np.log(left_out["p_sink"] * 1000), "phases_r2": left_out["r2_log"]}
    whole["phases_r2"] = tables["assumption_weights_model"]["r2_log"][0]
    for name, value in whole.items():
        assert samples[name].whole == pytest.approx(value)
        np.testing.assert_allclose(samples[name].of_sequences, 8 * value - 7 * without[name], rtol=1e-6)


def by_sequence(tables: Tables, table: str, column: str) -> np.ndarray:
    """The values of a column whose rows are in order of the sequence, (sequence, rows)."""
    return np.asarray(tables[table][column]).reshape(SEQUENCES, -1)
