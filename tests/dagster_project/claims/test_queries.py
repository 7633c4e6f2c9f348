"""The last query beside the others: read again from the rows of a made-up model, without SQL."""

import numpy as np
import pytest
from scipy import stats

from dagster_project.analysis.claims import queries
from dagster_project.analysis.claims.judging import compute_claims, find_measure
from tests.dagster_project.claims.judged import compute, key
from tests.dagster_project.claims.made_up import BY_HEAD, HEADS, LAYERS, SEQUENCES, fill, make_evidence, make_tables

HEADS_OF_ALL = LAYERS * HEADS


def test_rows_are_means_over_queries_then_sequences_with_student_intervals() -> None:
    levels = np.reshape(make_tables()["query_heads"]["recall_level"], (SEQUENCES, HEADS_OF_ALL, 3)).astype(np.float32)
    levels = levels.astype(np.float64)
    rows = key([row for row in compute()["query_means"] if row["measure"] == "recall_level"], "layer", "head")
    assert len(rows) == HEADS_OF_ALL
    for at, row in enumerate(rows[place] for place in sorted(rows)):
        for name, numbers in {
            "mean": levels[:, at].mean(axis=1),
            "last_difference": levels[:, at, 2] - levels[:, at, :2].mean(axis=1),
        }.items():
            low, high = stats.ttest_1samp(numbers, 0).confidence_interval(0.95)
            found = [row[name + end] for end in ("", "_low", "_high")]
            assert found == pytest.approx([numbers.mean(), low, high], abs=1e-9), (name, at)
        assert row["sequences"] == SEQUENCES


def test_queries_of_fewer_than_32_keys_and_heads_without_others_are_left_out() -> None:
    """With one of the others left, that is the others; with none, there is a mean but no difference."""
    one_left, none_left = (make_evidence(make_tables(other_query=other)) for other in (31, 30))
    levels = np.reshape(make_tables(other_query=31)["query_heads"]["recall_level"], (SEQUENCES, HEADS_OF_ALL, 3))
    samples = queries.measure(one_left)
    expected = (levels[..., 2] - levels[..., 1]).mean(axis=1)
    np.testing.assert_allclose(samples["recall_last_difference"].of_sequences, expected, atol=1e-6)
    assert queries.measure(none_left) == {}
    row = next(row for row in queries.list_rows(none_left) if row["measure"] == "recall_level")
    assert np.isnan([row["last_difference"], row["last_difference_low"]]).all()
    assert row["mean"] == pytest.approx(levels[:, 0, 2].mean(), abs=1e-6)


@pytest.mark.parametrize("apart", [0.0, 0.05, 0.2])
def test_the_typical_distance_is_that_of_heads_and_not_of_noise(apart: float) -> None:
    """Heads are apart up and down, so that their mean says nothing; the plain mean square would count noise."""
    rng = np.random.default_rng(0)
    sign = np.where(np.arange(2000) % 2, 1, -1)
    drawn = apart * sign + 0.3 * rng.standard_normal((6, 2000))
    assert queries.average_squares(drawn) == pytest.approx(apart**2, abs=0.001)
    assert (drawn.mean(axis=0) ** 2).mean() > apart**2 + 0.01  # a control
    slowly = [np.mean(drawn[i] * drawn[j]) for i in range(6) for j in range(6) if i != j]
    assert queries.average_squares(drawn) == pytest.approx(np.mean(slowly), rel=1e-9)


def test_levels_are_means_over_queries_and_thirds_those_of_their_classes_of_context() -> None:
    """Read again head by head; a mean over classes, or over their N, would differ."""
    rng, tables, shape = np.random.default_rng(0), make_tables(), (SEQUENCES, LAYERS, HEADS)
    n_keys = np.array([20, 32, 40, 50, 64, 70, 90])
    levels = {f"{name}_level": rng.random((*shape, len(n_keys))) for name in ("recall", "precision_excess")}
    tables["query_heads"] = fill((*BY_HEAD, ""), (*shape, len(n_keys)), query=n_keys - 1, n_keys=n_keys, **levels)
    grid = [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64]
    context = np.array([*[32] * 9, *[64] * 11, *[128] * 12])
    n = np.array([*grid[:9], *grid[:11], *grid])
    recall = rng.random((*shape, len(n)))
    tables["context_heads"] = fill((*BY_HEAD, ""), recall.shape, context=context, n=n, recall=recall)
    found = queries.read_levels(make_evidence(tables))
    for name in ("recall", "precision_excess"):
        expected = levels[f"{name}_level"][..., 1:].mean(axis=-1).reshape(SEQUENCES, -1)
        np.testing.assert_allclose(found[name], expected, rtol=1e-6)
    by_third: dict[str, list[np.ndarray]] = {"first": [], "middle": [], "last": []}
    for of, most in ((64, 64), (128, 90)):
        sizes = n[(context == of) & (n > 1)]
        weights = np.diff(np.log([1.5, *np.sqrt(sizes[1:] * sizes[:-1]), most - 0.5]))
        ends = np.exp(np.linspace(np.log(1.5), np.log(most - 0.5), 4))
        for third, low, high in zip(by_third, ends[:-1], ends[1:], strict=True):
            own = (low <= sizes) & (sizes < high)
            by_third[third].append(
                recall[..., (context == of) & (n > 1)][..., own] @ (weights[own] / weights[own].sum())
            )
    for third, (smaller, larger) in by_third.items():
        expected = ((3 * smaller + 2 * larger) / 5).reshape(SEQUENCES, -1)
        np.testing.assert_allclose(found[f"recall_{third}"], expected, rtol=1e-6, err_msg=third)
        assert not np.allclose(expected, ((smaller + larger) / 2).reshape(SEQUENCES, -1), rtol=1e-3)  # a control


def test_claims_about_heads_are_judged_at_every_query_and_tell_the_last_beside() -> None:
    """Of a model whose other queries are the reverse of its last; without every query it is the last that is judged."""
    tables = make_tables()
    tables["query_heads"]["recall_level"] = 1.5 - tables["query_heads"]["recall_level"]
    evidence = make_evidence(tables)
    found = {name: batch.to_pylist() for name, batch in compute_claims(evidence.connection, None)}
    for claim, measure in (("sink_predicts_recall", "sink_and_recall"), ("recall_predicts_loss", "recall_and_loss")):
        row, last = (key(rows["claims"], "claim")[claim] for rows in (found, compute(last_apart=None)))
        assert (row["verdict"], last["verdict"]) == ("not supported", "supported")
        (part,) = (part for part in found["claim_parts"] if part["claim"] == claim)
        assert part["measure"] == f"{measure}{queries.EVERY}"
        label = find_measure(measure).label
        assert label.endswith(" at the last query")
        assert f"; not judged, {label}: " in row["sentence"]
        assert (f"({label}: " in last["sentence"], "not judged" in last["sentence"]) == (True, False)
