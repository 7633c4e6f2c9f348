"""The last query beside the others, and heads as points: read again from the rows of a made-up model, without SQL."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dagster_project.analysis.claims import plane, queries
from dagster_project.analysis.claims.judging import compute_claims, find_measure
from tests.dagster_project.claims.judged import compute, key
from tests.dagster_project.claims.made_up import (
    BY_HEAD,
    HEADS,
    LAYERS,
    QUERY,
    SEQUENCES,
    fill,
    make_evidence,
    make_tables,
)

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


def read_curves(tables: dict[str, dict[str, Any]]) -> np.ndarray:
    """The curves of every sequence and head at equal steps of ln N, (S, H, 3 * 24)."""
    rows = tables["selection_counts"]
    shape = (SEQUENCES, LAYERS * HEADS, QUERY)
    at = np.array([round(QUERY ** (point / 23)) - 1 for point in range(24)])
    recall = np.asarray(rows["k_in"]) / np.asarray(rows["n"])
    columns = (np.asarray(rows["cos_sink"]), np.asarray(rows["cos_last"]), recall)
    return np.concatenate([column.reshape(shape)[..., at] for column in columns], axis=-1)


def compute_share(curves: np.ndarray) -> float:
    centred = curves - curves.mean(axis=0)
    lengths = np.linalg.svd(centred, compute_uv=False)
    return float((lengths[:2] ** 2).sum() / (lengths**2).sum())


def test_points_and_share_are_those_of_the_mean_curves() -> None:
    tables = make_tables()
    curves, evidence = read_curves(tables), make_evidence(tables)
    share = plane.measure(evidence)["plane_share"]
    whole = compute_share(curves.mean(axis=0))
    assert share.whole == pytest.approx(whole)
    for left, pseudo in enumerate(share.of_sequences):
        without = compute_share(np.delete(curves, left, axis=0).mean(axis=0))
        assert pseudo == pytest.approx(SEQUENCES * whole - (SEQUENCES - 1) * without)
    assert share.rows == LAYERS * HEADS
    rows = plane.list_rows(evidence)["head_plane"]
    points, axes = rows[: LAYERS * HEADS], rows[LAYERS * HEADS :]
    assert [(row["layer"], row["head"]) for row in points] == [
        (layer, head) for layer in range(LAYERS) for head in range(HEADS)
    ]
    mean = curves.mean(axis=0)
    directions = np.linalg.svd(mean - mean.mean(axis=0))[2][:2]
    expected = (mean - mean.mean(axis=0)) @ (directions * np.sign(directions.sum(axis=1))[:, None]).T
    np.testing.assert_allclose([[row["x"], row["y"]] for row in points], expected, atol=1e-6)
    parts = (directions**2).reshape(2, 3, 24).sum(axis=2)
    np.testing.assert_allclose([[abs(row[axis]) for row in axes] for axis in "xy"], parts, atol=1e-6)
    assert [row["curve"] for row in axes] == [*plane.CURVES]
    first = {row["curve"]: np.sign(row["x"]) for row in axes}
    assert first["cos_sink"] == -first["cos_last"], "the sum turns from the one to the other"


def test_a_hidden_sink_leaves_the_other_curves() -> None:
    tables = make_tables()
    tables["selection_counts"]["cos_sink"] = np.full(len(tables["selection_counts"]["n"]), np.nan)
    evidence = make_evidence(tables)
    axes = np.array([[row["x"], row["y"]] for row in plane.list_rows(evidence)["head_plane"] if "curve" in row])
    assert (axes[0] == 0).all()
    assert abs(axes).sum() == pytest.approx(2)


def test_heads_that_do_not_differ_have_no_plane() -> None:
    tables = make_tables(layers=1)
    rows = tables["selection_counts"]
    rows |= {"k_in": rows["n"]}
    rows |= {name: np.full(len(rows["n"]), 0.5) for name in ("cos_sink", "cos_last")}
    evidence = make_evidence(tables)
    assert plane.measure(evidence) == {}
    assert plane.list_rows(evidence) == {}


def test_one_sequence_has_points_and_no_error() -> None:
    share = plane.measure(make_evidence(make_tables(sequences=1)))["plane_share"]
    assert share.whole is not None
    assert np.isnan(share.of_sequences).all()
