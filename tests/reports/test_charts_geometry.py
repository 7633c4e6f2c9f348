"""Charts of single heads and of the example of Figure 1: valid, described, to scale, and holding the rows."""

from typing import Any

import altair as alt
import duckdb
import numpy as np
import pytest

from geometry.selection.example import build_intuition
from reports.elements import equal_scales
from reports.figures import Figure
from reports.head_geometry import figures as head_geometry
from reports.head_geometry.figures import project_vectors
from reports.intuition import figures as example
from tests.made_up import MadeUp, warehouse
from tests.reports.conftest import DEGENERATE, THREE, Build
from tests.reports.drawings import build_figures, changed, drawn, parts

KEYS = ("diagnostics", "contributions", "spheres", "effective-dimension")


def figures(connection: duckdb.DuckDBPyConnection, study: MadeUp) -> dict[str, Figure]:
    """The figures of the heads of a study."""
    return build_figures(connection, study, head_geometry.build_section)


@pytest.fixture(scope="module")
def toy() -> Figure:
    return example.build_example()


def scales(spec: Any, channel: str) -> list[Any]:
    """The scales of a channel in all layers."""
    encodings = [part["encoding"] for part in parts(spec) if "encoding" in part]
    return [encoding[channel]["scale"] for encoding in encodings if "scale" in encoding.get(channel, {})]


def contribution(query: int, position: int, norm: float, cosine: float | None = 0.5) -> dict[str, Any]:
    role = "last" if position == query else "sink" if position == 0 else "other"
    return {"query": query, "position": position, "role": role, "mean_norm_y": norm, "mean_cos_last": cosine}


def scattered(rows: list[dict[str, Any]]) -> alt.LayerChart:
    return head_geometry.draw_contributions(rows, title="a", largest=0.5)


def test_contributions_stand_in_columns_from_first_to_last() -> None:
    rows = [contribution(query, position, 0.1 + position) for query in (4, 8) for position in range(query + 1)]
    shown = drawn(scattered(rows))
    assert [(row["context"], row["share"]) for row in shown] == [
        (row["query"] + 1, row["position"] / row["query"]) for row in rows
    ]
    assert [row["norm"] for row in shown] == [pytest.approx(row["mean_norm_y"]) for row in rows]
    assert {row["kind"] for row in shown if row["marked"]} == {"sink", "last token"}


def test_signs_are_seen_without_colour() -> None:
    rows = [
        contribution(4, 0, 1.0),
        contribution(4, 1, 1.0, -0.1),
        contribution(4, 2, 1.0, 0.1),
        contribution(4, 4, 1.0),
    ]
    chart = scattered(rows)
    assert [row["kind"] for row in drawn(chart)] == ["sink", "other, cosine below 0", "other key", "last token"]
    (shapes, *_) = scales(chart.to_dict(), "shape")
    assert len(set(shapes["range"])) == len(shapes["domain"]) == 4
    assert all(scale["domain"] == [-0.5, 0, 0.5] for scale in scales(chart.to_dict(), "color"))


def test_the_log_axis_holds_what_is_drawn_and_nothing_that_is_0() -> None:
    chart = scattered([contribution(4, position, norm) for position, norm in enumerate([0.0, 3e-9, 3e-4, 0.2, 30.0])])
    norms = [row["norm"] for row in drawn(chart)]
    assert norms == [3e-4, 0.2, 30.0]
    domains = [scale["domain"] for scale in scales(chart.to_dict(), "y")]
    assert domains
    assert all(0 < low <= 3e-4 and high >= 30 for low, high in domains)
    (single,) = drawn(scattered([contribution(0, 0, 0.1)]))
    assert single["norm"] == 0.1


def direction(position: int, x: float, y: float, z: float, *, rank: int | None = None) -> dict[str, Any]:
    role = {0: "sink", 9: "last"}.get(position, "other")
    row = {"position": position, "x": x, "y": y, "z": z, "mean_weight": None if rank is None else 1 / rank}
    return row | {"role": role, "selected_rank": rank}


def ball(points: list[dict[str, Any]], n: int = 2) -> alt.LayerChart:
    shares = {"share_1": 0.16, "share_2": 0.05, "share_3": 0.04, "effective_dimension": 9.0, "head_dim": 16}
    return head_geometry.draw_sphere(points, title="a", of_kv_head=shares, n=n)


def test_the_view_is_a_rotation() -> None:
    turned = project_vectors(np.eye(3))
    np.testing.assert_allclose(turned @ turned.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(turned) == pytest.approx(1)
    assert turned[0, 2] == turned[:, 2].max()  # the first direction comes towards the reader


def test_points_are_seen_where_they_lie_and_by_their_depth() -> None:
    points = [direction(1, 1.0, 0.0, 0.0, rank=1), direction(2, -1.0, 0.0, 0.0, rank=3), direction(0, 0.0, 0.6, 0.0)]
    shown = {row["position"]: row for row in drawn(ball(points))}
    for point in points:
        row = shown[point["position"]]
        np.testing.assert_allclose(
            [row["x"], row["y"], row["depth"]], project_vectors(np.array([point[axis] for axis in "xyz"])), atol=1e-4
        )
    assert shown[1]["size"] > shown[2]["size"]
    assert shown[1]["strength"] > shown[2]["strength"]
    assert [row["position"] for row in drawn(ball(points))] == [2, 1, 0]  # from behind, the marked ones in front of all
    assert shown[0]["length"] == pytest.approx(0.6)


def rings(chart: alt.LayerChart) -> list[tuple[np.ndarray, float]]:
    """Center and radius of every closed polygon of a chart."""
    found = []
    for rows in chart.to_dict()["datasets"].values():
        corners = np.array([[row["x"], row["y"]] for row in rows if "order" in row and "line" not in row])
        if len(corners):
            center = (corners.min(axis=0) + corners.max(axis=0)) / 2
            radii = np.linalg.norm(corners - center, axis=1)
            np.testing.assert_allclose(radii, radii[0], atol=2e-4)
            found.append((center, float(radii[0])))
    return sorted(found, key=lambda ring: ring[1])


def test_units_are_as_long_on_both_axes_whatever_the_size() -> None:
    scales = [scale.to_dict()["domain"] for scale in equal_scales((2.0, -1.0), 0.5)]

    def ends(width: float, height: float) -> list[list[float]]:
        known = {"width": width, "height": height, "max": max}
        return [[eval(end["expr"], {"__builtins__": {}}, known) for end in domain] for domain in scales]

    for width, height in ((300, 250), (250, 250), (200, 250), (0, 250)):
        (left, right), (low, high) = ends(width, height)
        assert (right - left) / max(width, 1) == pytest.approx((high - low) / height)
        assert min(right - left, high - low) == pytest.approx(1)
        assert ((left + right) / 2, (low + high) / 2) == (pytest.approx(2), pytest.approx(-1))


def test_the_balls_are_drawn_to_scale_around_s(toy: Figure) -> None:
    found = build_intuition()
    inner, outer = rings(toy.charts[2])
    for (center, radius), expected in ((inner, found.r_min), (outer, found.r_max)):
        np.testing.assert_allclose(center, found.s, atol=2e-4)
        assert radius == pytest.approx(expected, abs=2e-4)


def test_the_example_is_that_of_geometry(toy: Figure) -> None:
    found, rows = build_intuition(), toy.table.to_pylist()
    assert [row["selected"] for row in rows] == found.selected.tolist()
    assert sum(row["selected"] and row["within"] for row in rows) == found.k_in
    assert sum(not row["selected"] and row["within"] for row in rows) == found.k_out
    assert "Recall is 2/3" in toy.finding
    assert "Precision is 3/8" in toy.finding
    for chart, places in zip(toy.charts, (found.values, found.scaled, found.scaled), strict=True):
        np.testing.assert_allclose([[row["x"], row["y"]] for row in drawn(chart)], places, atol=1e-5)
    for row, y in zip(rows, found.scaled, strict=True):
        assert row["distance"] == pytest.approx(float(np.linalg.norm(y - found.s)))


def test_examples_are_those_with_the_largest_margin(
    three: duckdb.DuckDBPyConnection, figures_of_three: dict[str, tuple[Build, Figure]]
) -> None:
    clearest = three.sql(
        "SELECT label, layer, head FROM head_taxonomy WHERE query = 23 "
        "QUALIFY row_number() OVER (PARTITION BY label ORDER BY margin DESC NULLS LAST, layer, head) = 1"
    ).fetchall()
    assert "Other" in {label for label, _, _ in clearest}
    for key in KEYS[:3]:
        rows = figures_of_three[key][1].table.to_pylist()
        assert {(row["label"], row["layer"], row["head"]) for row in rows} == set(clearest)


@pytest.mark.slow
def test_a_hidden_sink_leaves_its_lines_out_and_is_told() -> None:
    with warehouse(DEGENERATE["hidden sink"]) as connection:
        found = figures(connection, DEGENERATE["hidden sink"])
    specs = [chart.to_dict() for chart in found["diagnostics"].charts]
    assert any("A window hides the sink." in spec["description"] for spec in specs)
    shown = {name for scale in scales(specs, "strokeDash") for name in scale["domain"]}
    assert shown == {"the sum", "without last", "last token"}
    assert "A window hides the sink." in found["contributions"].finding


def test_vectors_of_norm_0_are_told(three: duckdb.DuckDBPyConnection) -> None:
    changes = (
        "UPDATE principal_directions SET status = 'zero', share_1 = NULL, effective_dimension = NULL",
        "UPDATE attention_by_position SET mean_norm_y = 0",
        "UPDATE selection_means SET cos_sink = NULL, cos_last = NULL",
    )
    with changed(three, *changes):
        found = figures(three, THREE)
    assert "norm 0" in found["spheres"].finding
    assert "norm 0" in found["effective-dimension"].finding
    assert found["contributions"].finding == "No key contributes anything."
    assert all(found[key].empty for key in KEYS[1:])
    assert not found["diagnostics"].stacked
    assert "No cos(s_N, v_L)" in found["diagnostics"].finding
