"""The section about the limits of selection: what its charts hold and its sentences say, and that it may be absent."""

import duckdb
import pytest

from reports.findings.numbers import number
from reports.limits.figures import build_section, describe_key_budgets
from tests.reports.conftest import SMALL, THREE
from tests.reports.drawings import build_figures, changed, drawn, of_query

KEYS = ("distance-rest", "convergence-uniform", "distinguishable-share", "temperature")


def test_four_figures_hold_the_rows_of_the_tables(three: duckdb.DuckDBPyConnection) -> None:
    found = build_figures(three, THREE, build_section)
    assert tuple(found) == KEYS
    assert not [figure for figure in found.values() if figure.empty]
    distances, beside = (drawn(chart) for chart in found["distance-rest"].charts)
    assert {row["query"] for row in distances} == {23}
    assert {row["query"] for row in beside} == {5, 11, 23}
    means = three.sql("SELECT n, relative_distance FROM selection_means_model WHERE query = 23").fetchall()
    for row in distances:
        assert row["relative_distance"] == pytest.approx(dict(means)[row["n"]], rel=1e-5)
    assert len(distances) > 15
    for row in beside:
        if row["relative_random_distance"]:
            wanted = row["relative_distance"] / row["relative_random_distance"]
            assert row["beside_random"] == pytest.approx(wanted, rel=1e-4)
    assert [row["n_keys"] for row in drawn(found["convergence-uniform"].charts[0])] == [6, 12, 24]
    assert min(row["n"] for row in drawn(found["distinguishable-share"].charts[0])) == 2
    best = drawn(found["temperature"].charts[1])
    heads = {measure: sum(row["heads"] for row in best if row["measure"] == measure) for measure in ("auc", "recall")}
    assert heads == dict.fromkeys(("auc", "recall"), THREE.layers * THREE.heads)


def test_the_best_of_one_temperature_is_not_told(small: duckdb.DuckDBPyConnection) -> None:
    """A twin is measured at T = 1 alone; its page said that AUC is most often largest there, in all heads."""
    several = build_figures(small, SMALL, build_section)["temperature"]
    tables = ("sensitivity", "temperature_means")
    with changed(small, *(f"DELETE FROM {table} WHERE temperature <> 1" for table in tables)):
        alone = build_figures(small, SMALL, build_section)["temperature"]
    assert (len(several.charts), len(alone.charts)) == (2, 1)
    assert [len(build_figures(small, SMALL, build_section)[key].charts) for key in KEYS[:2]] == [1, 1], (
        "one context is compared with none"
    )
    assert "most often largest" in several.finding
    assert "most often largest" not in alone.finding


def test_the_keys_of_90_per_cent_of_the_weight_are_told_with_intervals(three: duckdb.DuckDBPyConnection) -> None:
    (row,) = of_query(three, THREE, "key_budgets_of_model")
    counted = three.sql("SELECT layer, head, avg(n_90) FROM attention_rows WHERE query = 23 GROUP BY ALL").fetchall()
    means = {(layer, head): mean for layer, head, mean in counted}
    assert row["n_90"] == pytest.approx(sum(means.values()) / len(means))
    for end, best in (("fewest", min), ("most", max)):
        assert row[end]["n_90"] == means[row[end]["layer"], row[end]["head"]] == best(means.values())
        assert row[end]["low"] < row[end]["n_90"] < row[end]["high"]
    told = describe_key_budgets([row], [])
    assert told in build_figures(three, THREE, build_section)["convergence-uniform"].finding
    assert told.startswith(f"To keep 90 % of its weight, the mean head keeps {number(row['n_90'])} (")
