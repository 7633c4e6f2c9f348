"""The section about what heads do: what its charts hold and its sentences say, and that most studies have none."""

from typing import Any

import duckdb
import numpy as np
import pytest
import vl_convert
from scipy import stats

from reports.figures import Figure, find_source
from reports.figures.effects import build_sections
from reports.findings import effects as findings
from reports.queries import ask
from tests.made_up import MadeUp, warehouse
from tests.reports.conftest import SMALL
from tests.reports.drawings import drawn

TABLES = ("head_ablation", "sparsified_loss")


def figures(connection: duckdb.DuckDBPyConnection, study: str) -> dict[str, Figure]:
    parts = build_sections(find_source(connection, study, map_n=4))
    return {figure.key: figure for part in parts for figure in part.figures}


@pytest.fixture(scope="module")
def rows(small: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    return ask(small, "ablation_by_head", study=SMALL.study).rows()


def test_three_figures_hold_the_rows_of_the_tables(small: duckdb.DuckDBPyConnection) -> None:
    found = figures(small, SMALL.study)
    assert list(found) == ["loss-by-head", "loss-and-geometry", "loss-by-keys"]
    losses = small.sql("SELECT layer, head, delta_loss FROM head_ablation WHERE kind = 'zero'").fetchall()
    mapped = {(row["layer"], row["head"]): row["delta_loss"] for row in drawn(found["loss-by-head"].charts[0])}
    assert mapped == pytest.approx({(layer, head): loss for layer, head, loss in losses}, rel=1e-5)
    seeing, knowing = (drawn(chart) for chart in found["loss-by-keys"].charts)
    assert {row["policy"] for row in seeing} == {"same_n", "elbow"}
    assert {row["policy"] for row in knowing} == {"sink_recent"}


def test_they_draw_without_a_warning(small: duckdb.DuckDBPyConnection) -> None:
    for figure in figures(small, SMALL.study).values():
        for chart in figure.charts:
            picture = vl_convert.vegalite_to_svg(chart.properties(width=300).to_dict())
            assert "NaN" not in picture
            assert "undefined" not in picture


def test_a_study_without_effects_has_no_section() -> None:
    with warehouse(MadeUp("none", without=TABLES), MadeUp("some", without=TABLES[1:])) as connection:
        assert figures(connection, "none") == {}
        assert set(figures(connection, "some")) == {"loss-by-head", "loss-and-geometry"}


def test_correlations_are_spearman_s_of_the_rows(rows: list[dict[str, Any]]) -> None:
    found = findings.correlate_measures(rows)
    assert {"recall", "rho_0", "effective_keys"} <= found.keys()
    for measure, one in found.items():
        pairs = np.array([(row[measure], row["delta_loss"]) for row in rows if row[measure] is not None], np.float64)
        assert one.correlation == pytest.approx(stats.spearmanr(*pairs.T).statistic)
        assert one.heads == len(pairs)


def test_zero_is_preferred_to_other_kinds(rows: list[dict[str, Any]]) -> None:
    assert {row["kind"] for row in rows} == {"zero"}
    with warehouse(MadeUp("mean")) as connection:
        connection.execute("UPDATE head_ablation SET kind = 'mean' WHERE kind = 'zero'")
        other = ask(connection, "ablation_by_head", study="mean").rows()
    assert {row["kind"] for row in other} == {"mean"}
    assert "replaced by its mean" in findings.describe_ablation(other)


def test_the_head_of_most_worth_is_named(rows: list[dict[str, Any]]) -> None:
    most = max(rows, key=lambda row: row["delta_loss"])
    said = findings.describe_ablation(rows)
    assert f"layer {most['layer']}, head {most['head']}" in said
    above = sum(row["low"] > 0 for row in rows)
    assert f"above 0 in {above} of {len(rows)} heads" in said
    alone = findings.describe_ablation([row | {"low": None, "high": None} for row in rows])
    assert "there are no intervals" in alone


def test_what_is_told_from_none_follows_from_p(rows: list[dict[str, Any]]) -> None:
    strong = [row | {"recall": row["delta_loss"], "kv_head": row["head"]} for row in rows]
    assert "Recall" in findings.describe_correlations(findings.correlate_measures(strong)).split("measures, ")[1]
    rng = np.random.default_rng(1)
    weak = [row | {measure: rng.random() for measure in findings.MEASURES} for row in rows]
    assert "none has a significant correlation" in findings.describe_correlations(findings.correlate_measures(weak))
    assert findings.describe_correlations({}).startswith("Too few heads")


def test_the_cheapest_policy_of_either_kind_is_named(small: duckdb.DuckDBPyConnection) -> None:
    policies = ask(small, "loss_by_keys", study=SMALL.study).rows()
    said = findings.describe_budgets(policies)
    assert "that see the weights, “same N” costs least, 0.1 nats, and “N by elbow” most, 0.12" in said
    assert "that know only past statistics, “sink and recent” costs least, 0.9 nats" in said
