"""Heads as points of a plane: the first two principal components of their curves over ln N."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.records import Claim, Measure, Samples
from geometry.arrays import F64
from geometry.statistics.intervals import SHARE, average_known, leave_one_out

CURVES = ("cos_sink", "cos_last", "recall")  # The curves of a head, one after the other
POINTS = 24  # Points of each curve, in equal steps of ln N from 1 to the largest N of the head

MEASURES = {
    "plane_share": Measure(
        "share of the variance over heads of the curves of cos(s_N, v_0), cos(s_N, v_L) and Recall over ln N that two "
        "axes hold",
        "share of the differences between heads",
        SHARE,
    )
}
CLAIMS: tuple[Claim, ...] = ()


class Plane(NamedTuple):
    """The plane of some curves."""

    points: F64  # Place of each curve on both axes, (…, 2), in the units of the curves; the mean curve lies at 0
    axes: F64
    """Directions of the axes, (2, F), of length 1, each with a sum of at least 0; 0 where the curves differ in less."""
    share: float  # Share of the curves' variance that the plane holds; NaN if they are all equal


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name."""
    curves, _ = _read_curves(evidence)
    if curves.shape[1] < 2 or np.isnan(whole := fit_plane(average_known(curves)).share):
        return {}
    without = [fit_plane(one).share for one in leave_one_out(curves)] if len(curves) > 1 else [np.nan]
    return {"plane_share": Sample.of_jackknife(whole, without, curves.shape[1])}


def list_rows(evidence: Evidence) -> dict[str, list[dict[str, Any]]]:
    """The rows of ``head_plane`` at the last query; none if the heads do not differ."""
    curves, places = _read_curves(evidence)
    if len(places) < 2 or np.isnan((plane := fit_plane(average_known(curves))).share):
        return {}
    points = [
        {"layer": layer, "head": head, "x": x, "y": y}
        for (layer, head), (x, y) in zip(places, plane.points.tolist(), strict=True)
    ]
    return {"head_plane": points + _list_curves(plane)}


def _list_curves(plane: Plane) -> list[dict[str, Any]]:
    """The curves as points: how much of each axis every curve makes up, with the sign of the way that it goes."""
    parts = plane.axes.reshape(2, len(CURVES), POINTS)
    places = np.sign(parts.sum(axis=2)) * (parts**2).sum(axis=2)
    return [{"curve": curve, "x": x, "y": y} for curve, (x, y) in zip(CURVES, places.T.tolist(), strict=True)]


def _read_curves(evidence: Evidence) -> tuple[F64, list[list[int]]]:
    """The curves of every sequence and head, (S, H, curves * points), NaN where a head has none; layer and head."""
    columns = evidence.ask_columns(
        f"""
        WITH reaches AS (
            SELECT layer, head, max(n) AS last
            FROM selection_counts
            WHERE query = $query
            GROUP BY layer, head
        ),
        wanted AS (
            SELECT layer, head, point, round(last ** (point / {POINTS - 1}))::INTEGER AS n
            FROM reaches
            CROSS JOIN range({POINTS}) AS points (point)
        )
        SELECT sequence, layer, head, point, cos_sink, cos_last, k_in / n AS recall
        FROM selection_counts
        JOIN wanted USING (layer, head, n)
        WHERE query = $query
        """
    )
    sequence, layer, head, point = (columns[name].astype(int) for name in ("sequence", "layer", "head", "point"))
    places, place = np.unique(np.stack([layer, head]), axis=1, return_inverse=True)
    curves = np.full((evidence.sequences, places.shape[1], len(CURVES), POINTS), np.nan)
    for index, name in enumerate(CURVES):
        curves[sequence, place.ravel(), index, point] = columns[name]
    return curves.reshape(*curves.shape[:2], len(CURVES) * POINTS), places.T.tolist()


def fit_plane(curves: ArrayLike) -> Plane:
    """Find the first two principal components of curves of F numbers, (H, F), H ≥ 1; what is NaN counts as the mean of
    the others.
    """
    given = np.asarray(curves, np.float64)
    known = ~np.isnan(given)
    counts = np.maximum(known.sum(axis=0), 1)
    centred = np.where(known, given - np.where(known, given, 0.0).sum(axis=0) / counts, 0.0)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    axes = np.zeros((2, given.shape[1]))
    total = variances.sum()
    for place, index in enumerate(range(len(variances) - 1, max(len(variances) - 3, -1), -1)):
        if variances[index] > 1e-12 * total:
            axes[place] = directions[:, index] * (1 if directions[:, index].sum() >= 0 else -1)
    points = centred @ axes.T
    return Plane(points, axes, float((points**2).sum() / total) if total > 0 else float("nan"))
