"""The section about what heads do: what its charts hold and its sentences say, and that most studies have none."""

import duckdb
import pytest

from reports.effects import figures as effects
from reports.effects.figures import build_section
from reports.figures import find_source
from tests.reports.conftest import SMALL
from tests.reports.drawings import build_figures, changed, drawn


def test_three_figures_hold_the_rows_of_the_tables(small: duckdb.DuckDBPyConnection) -> None:
    found = build_figures(small, SMALL, build_section)
    assert list(found) == ["loss-by-head", "loss-and-geometry", "loss-by-keys"]
    losses = small.sql("SELECT layer, head, delta_loss FROM head_ablation WHERE kind = 'zero'").fetchall()
    mapped = {(row["layer"], row["head"]): row["delta_loss"] for row in drawn(found["loss-by-head"].charts[0])}
    assert mapped == pytest.approx({(layer, head): loss for layer, head, loss in losses}, rel=1e-5)
    seeing, knowing = (drawn(chart) for chart in found["loss-by-keys"].charts)
    assert {row["policy"] for row in seeing} == {"same_n", "elbow"}
    assert {row["policy"] for row in knowing} == {"sink_recent"}


def test_a_study_without_effects_has_no_figures(small: duckdb.DuckDBPyConnection) -> None:
    with changed(small, "DELETE FROM sparsified_loss"):
        assert set(build_figures(small, SMALL, build_section)) == {"loss-by-head", "loss-and-geometry"}
    with changed(small, "DELETE FROM sparsified_loss", "DELETE FROM head_ablation"):
        assert build_section(find_source(small, SMALL.study, map_n=4)).figures == ()


def test_losses_of_keeping_keys_have_a_figure_with_their_own_rows(small: duckdb.DuckDBPyConnection) -> None:
    assert "loss-and-error" not in build_figures(small, SMALL, build_section)
    row = "heads, 8, 0.5, 0.4, 0.6, 0.01, 0.02, 0.1, -0.1, 0.2, 0.5, 0.3 FROM loss_associations LIMIT 1"
    added = f"INSERT INTO loss_associations SELECT study, 'selected', '{effects.ERROR}', {row}"
    other = "* REPLACE ('selected' AS kind, 2 * delta_loss AS delta_loss) FROM head_ablation WHERE kind = 'zero'"
    with changed(small, f"INSERT INTO head_ablation SELECT {other}", added):
        found = build_figures(small, SMALL, build_section)["loss-and-error"]
        losses = small.sql("SELECT layer, head, delta_loss FROM head_ablation WHERE kind = 'selected'").fetchall()
    (told,) = small.sql("SELECT sentence FROM claims WHERE claim = 'error_tells_loss'").fetchall()[0]
    assert found.finding == told
    (chart,) = found.charts
    shown = {(row["layer"], row["head"]): row["delta_loss_selected"] for row in drawn(chart)}
    assert shown == pytest.approx({(layer, head): loss for layer, head, loss in losses}, rel=1e-5)
