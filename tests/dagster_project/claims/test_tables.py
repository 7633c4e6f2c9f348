"""The tables of measures and claims: all claims of a study together, and beside its twin."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dagster_project.analysis.claims.effects import ERROR, RIVALS, correlate_losses
from dagster_project.analysis.claims.judging import CLAIMS, Twin, compute_claims, find_measure
from geometry.statistics.verdicts import count_sequences_needed
from tests.dagster_project.claims.judged import Rows, compute, key, make_twin
from tests.dagster_project.claims.made_up import HEADS, LAYERS, SEQUENCES, make_evidence, make_tables


@pytest.fixture(scope="module")
def confirmed() -> dict[str, Rows]:
    """The tables of the model that confirms the paper."""
    return compute()


@pytest.fixture(scope="module")
def mixed() -> dict[str, Rows]:
    """Those of a model with verdicts of all four kinds."""
    return compute(variation=0.051, sink_norm=1.0, regimes=["IV"], thirds=(0.8, 0.79, 0.8), slope=0.1)


def test_a_model_that_confirms_the_paper_supports_every_claim(confirmed: dict[str, Rows]) -> None:
    """But what holds by construction, and those about depth, of which six layers say too little."""
    verdicts = {row["claim"]: (row["verdict"], row["limited_by"]) for row in confirmed["claims"]}
    expected: dict[str, tuple[str, str | None]] = {claim.name: ("supported", None) for claim in CLAIMS}
    expected |= dict.fromkeys(("resets_early", "retrievers_first", "kinds_in_order"), ("undecided", "6 layers"))
    assert verdicts == expected | {"norms_stable": ("not testable", None)}


def test_the_order_of_measures_is_not_that_of_the_rows_they_are_computed_from() -> None:
    """DuckDB's threads return the groups of an aggregation in any order."""
    backwards = {
        table: {column: np.asarray(values)[::-1] for column, values in columns.items()}
        for table, columns in make_tables().items()
    }
    tables = dict(compute_claims(make_evidence(backwards).connection, None))
    names = [row["measure"] for row in compute(None)["measures"]]
    assert (tables["measures"]["measure"].to_pylist(), len(names) > 50) == (names, True)


def test_verdicts_follow_from_holms_correction_over_the_testable_claims(mixed: dict[str, Rows]) -> None:
    rows = mixed["claims"]
    assert {row["verdict"] for row in rows} == {"supported", "not supported", "undecided", "not testable"}
    tested = [row for row in rows if row["p"] is not None]
    assert all((row["verdict"] == "not testable") == (row["p"] is None) == bool(row["reason"]) for row in rows)
    order = sorted(tested, key=lambda row: row["p"])
    largest = 0.0
    for rank, row in enumerate(order):  # the step-down of Holm's paper
        largest = max(largest, min(1.0, (len(order) - rank) * row["p"]))
        assert row["p_holm"] == pytest.approx(largest)
        assert (row["verdict"] == "undecided") == (largest > 0.05)


def test_verdicts_on_claims_follow_from_those_on_their_parts(
    confirmed: dict[str, Rows], mixed: dict[str, Rows], beside: dict[str, Rows]
) -> None:
    """Not from intervals: those of 95 %, which no correction widens, exclude thresholds of undecided parts."""
    narrow = 0
    for tables in (confirmed, mixed, beside, compute(None)):
        for claim in tables["claims"]:
            parts = [part for part in tables["claim_parts"] if part["claim"] == claim["claim"]]
            verdicts = {part["verdict"] for part in parts}
            all_needed, enough = ("supported", "not supported")[:: -1 if parts[0]["is_alternative"] else 1]
            joined = enough if enough in verdicts else next(iter(verdicts)) if len(verdicts) == 1 else "undecided"
            assert claim["verdict"] == joined, claim["claim"]
            assert claim["verdict"] != all_needed or verdicts == {all_needed}
            narrow += sum(
                part["verdict"] == "undecided" and not part["value_low"] <= part["threshold"] <= part["value_high"]
                for part in parts
            )
    assert narrow > 0


@pytest.fixture(scope="module")
def associated() -> list[dict[str, Any]]:
    """Associations of a model whose error of 16 keys is the loss without a head; by another kind it is the reverse."""
    evidence = make_evidence(make_tables())
    evidence.connection.execute(
        f"""
        DELETE FROM head_measures;
        DELETE FROM head_ablation_by_sequence WHERE kind = 'selected';
        INSERT INTO head_measures BY NAME
        SELECT layer, head, unnest(['recall', 'weight_left_out_16', 'elbow', '{ERROR}']) AS measure,
            unnest([avg(recall), -avg(recall), hash(layer, head) % 97, avg(delta_loss)]) AS value
        FROM head_levels JOIN head_ablation_by_sequence USING (sequence, layer, head)
        WHERE kind = 'zero' GROUP BY layer, head
        """
    )
    return list(correlate_losses(evidence))


def test_measures_go_with_the_loss_by_both_tests_over_all_of_them(associated: list[dict[str, Any]]) -> None:
    """Student's t of Fisher's z over sequences and random arrangements, after Holm's correction."""
    rows = associated
    ends = np.arctanh([[row["correlation"], row["correlation_low"], row["correlation_high"]] for row in rows])
    degrees = rows[0]["sequences"] - 1
    t = ends[:, 0] * 2 * stats.t.ppf(0.975, degrees) / (ends[:, 2] - ends[:, 1])
    both = [max(row["p"], float(p)) for row, p in zip(rows, 2 * stats.t.sf(np.abs(t), degrees), strict=True)]
    largest = 0.0
    for rank, at in enumerate(np.argsort(both)):
        largest = max(largest, min(1.0, (len(rows) - rank) * both[at]))
        assert rows[at]["p_holm"] == pytest.approx(largest, rel=1e-6)
    assert {row["measure"] for row in rows if row["p_holm"] > 0.05} == {"elbow"}


def test_the_error_is_ahead_of_a_measure_whichever_way_that_goes_with_the_loss(
    associated: list[dict[str, Any]],
) -> None:
    tables = make_tables()
    shape = (3, SEQUENCES, LAYERS, HEADS)
    zero = np.reshape(tables["head_ablation_by_sequence"]["delta_loss"], shape)[0]
    recall = np.reshape(tables["head_levels"]["recall"], shape[1:]).mean(axis=0)

    def correlate(of_heads: np.ndarray) -> np.ndarray:
        """Fisher's z of each sequence, from ranks within layers."""
        ranked = [stats.rankdata(one, axis=-1) - (HEADS + 1) / 2 for one in (of_heads, zero)]
        return np.arctanh([stats.pearsonr(ranked[0].ravel(), one.ravel())[0] for one in ranked[1]])

    row_of = key(associated, "kind", "measure")
    for sign, kind in ((1, "zero"), (-1, "mean")):
        difference = sign * correlate(zero.mean(axis=0)) - np.abs(correlate(recall))
        low, high = stats.ttest_1samp(difference, 0).confidence_interval(0.95)
        for measure in ("recall", "weight_left_out_16"):
            row = row_of[kind, measure]
            found = [row[f"error_ahead{end}"] for end in ("", "_low", "_high")]
            assert found == pytest.approx([difference.mean(), low, high], rel=1e-6), (kind, measure)
        assert "error_ahead" not in row_of[kind, ERROR]
    clear = {place for place, row in row_of.items() if row.get("error_ahead_p_holm", 1) < 0.05}
    assert clear == {("zero", "elbow"), ("mean", "elbow"), ("mean", "recall"), ("mean", "weight_left_out_16")}


@pytest.mark.slow
def test_an_error_that_rises_with_the_loss_must_be_ahead_of_each_rival() -> None:
    """Of equals it is not; what does not measure it says so."""
    equal = key(compute(rivals=0.01)["claim_parts"], "claim", "part")
    verdicts = [equal["error_tells_loss", part]["verdict"] for part in range(1 + len(RIVALS))]
    assert (verdicts[0], "supported" in verdicts[1:]) == ("supported", False)
    evidence = make_evidence(make_tables())
    evidence.connection.execute("DELETE FROM head_ablation_by_sequence WHERE kind = 'selected'")
    evidence.connection.execute("DELETE FROM head_ablation WHERE kind = 'selected'")
    tables = {name: batch.to_pylist() for name, batch in compute_claims(evidence.connection, None)}
    row = key(tables["claims"], "claim")["error_tells_loss"]
    assert row["sentence"].endswith("cannot be tested: the study keeps 16 keys of no head alone.")


def test_values_of_sequences_give_every_interval(mixed: dict[str, Rows]) -> None:
    """Student's t over the numbers of sequences, on the measure's own scale; but for ends that its domain clips."""
    measures, compared = key(mixed["measures"], "measure"), 0
    for name, row in measures.items():
        measure, numbers = find_measure(name), [number for number in row["of_sequences"] if number is not None]
        ends = [row[f"value{end}"] for end in ("", "_low", "_high")]
        if not {None, *measure.domain} & {*ends}:
            middle, low, high = map(measure.scale.forward, ends)
            half = stats.t.ppf(0.975, len(numbers) - 1) * stats.sem(numbers)
            assert (low - middle, high - middle) == pytest.approx((-half, half), rel=1e-6, abs=1e-12), name
            compared += 1
    assert compared > 60
    above, alike = (measures[name] for name in ("recall_over_random", "sink_and_recall"))
    assert above["value"] == pytest.approx(np.mean(above["of_sequences"]))
    assert alike["value"] == pytest.approx(np.tanh(np.mean(alike["of_sequences"])))


def test_undecided_claims_say_how_many_sequences_would_decide(mixed: dict[str, Rows]) -> None:
    claims = key(mixed["claims"], "claim")
    row = claims["norms_stable_within_sequence"]
    undecided = sum(one["verdict"] == "undecided" for one in claims.values())
    assert row["verdict"] == "undecided"
    values = key(mixed["measures"], "measure")["cv_within_sequence"]["of_sequences"]
    assert row["sequences_needed"] == count_sequences_needed(values, 0.05, 0.05 / 2 / undecided)
    for one in claims.values():
        assert one["sequences_needed"] is None or (one["verdict"] == "undecided" and one["sequences_needed"] > 8)
    assert f"about {row['sequences_needed']:,} sequences would decide" in row["sentence"]


@pytest.fixture(scope="module")
def other() -> Twin:
    """A model of less Recall and more AUC over chance, and a shorter sink."""
    return make_twin(compute(over_chance={"recall": 0.25, "specificity": 0.1, "auc": 0.3}, sink_norm=0.1, seed=1))


@pytest.fixture(scope="module")
def beside(other: Twin) -> dict[str, Rows]:
    """The tables of the model that confirms the paper, beside that one."""
    return compute(other)


class TestTwins:
    """Beside another study, sequence by sequence."""

    def test_differences_are_paired(self, confirmed: dict[str, Rows], beside: dict[str, Rows], other: Twin) -> None:
        own = {row["measure"]: np.array(row["of_sequences"], np.float64) for row in confirmed["measures"]}
        for name in ("recall_over_random", "auc_over_random", "lambda_of_sinks"):
            row = key(beside["measures"], "measure")[name]
            test = stats.ttest_rel(own[name], other.values[name])
            low, high = test.confidence_interval(0.95)
            assert row["twin_difference"] == pytest.approx(np.mean(own[name] - other.values[name]))
            found = (row["twin_difference_low"], row["twin_difference_high"], row["twin_p"])
            assert found == pytest.approx((low, high, test.pvalue), rel=1e-6)
            assert row["twin_value"] == pytest.approx(other.values[name].mean())

    def test_beyond_random_weights_is_a_test_of_the_difference(self, beside: dict[str, Rows], other: Twin) -> None:
        claims = key(beside["claims"], "claim")
        differences = {claim.name for claim in CLAIMS if claim.exceeds_twin}
        assert {"selection_sharpens", "regimes_fit"} <= differences
        of_others = {name: None if name in differences else verdict for name, verdict in other.verdicts.items()}
        assert {name: row["twin_verdict"] for name, row in claims.items()} == of_others
        for name in ("sink_compressed", "norms_stable_within_sequence"):  # λ larger, the same
            assert claims[name]["beyond_twin"] is False, name
        longer = replace(other, values={name: 4 * values for name, values in other.values.items()})
        again = key(compute(longer)["claims"], "claim")
        assert {again[name]["beyond_twin"] for name in ("sink_compressed", "norms_stable_within_sequence")} == {True}
        lacking = replace(longer, verdicts={**longer.verdicts, "sink_compressed": "not testable"})
        row = key(compute(lacking)["claims"], "claim")["sink_compressed"]
        assert (row["beyond_twin"], row["twin_verdict"]) == (None, "not testable"), "the twin lacks the premise"

    def test_a_claim_of_such_differences_is_beyond_random_weights(self, confirmed: dict[str, Rows]) -> None:
        """That the twin has no twin, so that its own verdict is not known, does not matter."""
        beyond = {name: row["beyond_twin"] for name, row in key(confirmed["claims"], "claim").items()}
        assert beyond["selection_sharpens"] is beyond["values_sharpen"] is True
        assert beyond["premise_holds"] is None

    def test_a_twin_that_leaves_every_query_out_is_compared_at_the_last(self) -> None:
        twin = make_twin(compute(worth=0.0, last_apart=None))
        assert "recall_and_loss_at_every_query" not in twin.values
        claims = key(compute(twin)["claims"], "claim")
        assert [claims[name]["beyond_twin"] for name in ("recall_predicts_loss", "last_query_like_others")] == [
            True,
            None,
        ]

    def test_without_a_twin_nothing_is_compared(self) -> None:
        rows = compute(None)
        sharpens = key(rows["claims"], "claim")["selection_sharpens"]
        assert sharpens["reason"] == "the study has no model of random weights to compare with"
        for row in (*rows["claims"], *rows["measures"]):
            assert {value for name, value in row.items() if "twin" in name} == {None}


def test_a_study_of_one_sequence_has_values_without_intervals() -> None:
    found = compute(sequences=1)
    assert {row["verdict"] for row in found["claims"]} == {"not testable"}
    assert found["measures"]
    assert {row["value_low"] for row in found["measures"]} == {None}
