"""Heads as points: the plane of their curves in a made-up model, read again from its rows."""

from typing import Any

import numpy as np
import pytest

from dagster_project.analysis.claims import plane
from tests.dagster_project.claims.made_up import HEADS, LAYERS, QUERY, SEQUENCES, make_evidence, make_tables


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
