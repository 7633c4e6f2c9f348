"""The section about the limits of selection: what its charts hold and its sentences say, and that it may be absent."""

from typing import Any

import duckdb
import pytest

from reports.figures import Figure
from reports.findings.numbers import number
from reports.limits import figures as limits
from reports.limits.figures import build_sections, describe_key_budgets
from reports.queries import ask
from tests.made_up import MadeUp
from tests.reports.conftest import SMALL, THREE
from tests.reports.drawings import build_figures, changed, drawn

STUDY = THREE
KEYS = ("distance-rest", "convergence-uniform", "distinguishable-share", "temperature")


def figures_of(connection: duckdb.DuckDBPyConnection, study: MadeUp) -> dict[str, Figure]:
    """The figures of the section by their keys; none without the section."""
    return build_figures(connection, study, build_sections)


def rows(connection: duckdb.DuckDBPyConnection, name: str, **parameters: Any) -> list[dict[str, Any]]:
    return ask(connection, name, study=STUDY.study, **parameters).rows()


def test_four_figures_hold_the_rows_of_the_tables(three: duckdb.DuckDBPyConnection) -> None:
    found = figures_of(three, STUDY)
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
    assert heads == dict.fromkeys(("auc", "recall"), STUDY.layers * STUDY.heads)


def test_the_best_of_one_temperature_is_not_told(small: duckdb.DuckDBPyConnection) -> None:
    """A twin is measured at T = 1 alone; its page said that AUC is most often largest there, in all heads."""
    several = figures_of(small, SMALL)["temperature"]
    tables = ("sensitivity", "temperature_means")
    with changed(small, *(f"DELETE FROM {table} WHERE temperature <> 1" for table in tables)):
        alone = figures_of(small, SMALL)["temperature"]
    assert (len(several.charts), len(alone.charts)) == (2, 1)
    assert [len(figures_of(small, SMALL)[key].charts) for key in KEYS[:2]] == [1, 1], (
        "one context is compared with none"
    )
    assert "most often largest" in several.finding
    assert "most often largest" not in alone.finding


def head(critical: int | None, until: int | None, layer: int = 0, number: int = 0) -> dict[str, Any]:
    return {"layer": layer, "head": number, "critical_n": critical, "last_nearer_n": until, "nearest_n": 3}


def test_how_many_heads_have_a_critical_n_of_1_is_told() -> None:
    ones = limits.describe_critical_n([head(1, 40), head(1, 60, number=1), head(5, 20, number=2)])
    assert "is 1 in the median head, and 1 in 2 of 3 heads." in ones
    assert "are nearer is 40 in the median head, and 60 in layer 0, head 1." in ones
    some = limits.describe_critical_n([head(8, 40), head(16, 60), head(1, 20), head(None, None)])
    assert "is 8 in the median head of the 3 that have one, and 1 in 1 of 4 heads." in some
    assert limits.describe_critical_n([head(None, None)]).startswith("In no head")


def test_what_is_nearer_is_read_off_the_means(three: duckdb.DuckDBPyConnection) -> None:
    means = three.sql(
        "SELECT layer, head, n, relative_distance, relative_random_distance FROM selection_means "
        "WHERE query = 23 ORDER BY ALL"
    ).fetchall()
    for row in rows(three, "critical_n", query=23):
        mine = [(n, own, of) for layer, number, n, own, of in means if (layer, number) == (row["layer"], row["head"])]
        near = [n for n, own, of in mine if own <= of * (1 + 1e-6)]
        assert row["nearest_n"] == min(mine, key=lambda one: (one[1], one[0]))[0]
        assert row["critical_n"] == (min(near) if near else None)
        assert row["last_nearer_n"] == max((n for n in near if 2 * n <= 24), default=None)


def test_which_bound_is_exceeded_is_said(three: duckdb.DuckDBPyConnection) -> None:
    found = rows(three, "sensitivity_bounds_model", query=23)
    kept = [row | {"reported_holds": 1.0} for row in found]
    assert "holds at every T" in limits.describe_sensitivity(kept)
    broken = [row | {"reported_holds": 0.75} for row in found]
    assert f"{found[0]['rows'] // 4} of {found[0]['rows']} pairs of head and sequence" in limits.describe_sensitivity(
        broken
    )


def test_the_share_is_within_the_band_where_the_rows_are(three: duckdb.DuckDBPyConnection) -> None:
    found = [row | {"within_band": row["n"] in {4, 5, 6}} for row in rows(three, "distinguishable_by_n", query=23)]
    assert "between 0.70 and 0.85 at N = 4 to 6," in limits.describe_distinguishable(found)
    assert "holds the most heads at N = 5: 2 of 6 heads." in limits.describe_distinguishable(
        [row | {"heads": 6, "heads_within": (row["n"] == 5) / 3} for row in found]
    )
    never = [row | {"within_band": False, "heads_within": 0.0} for row in found]
    assert "at none of the N shown. It holds no head at any of these N." in limits.describe_distinguishable(never)


def test_the_keys_of_90_per_cent_of_the_weight_are_told_with_intervals(three: duckdb.DuckDBPyConnection) -> None:
    (row,) = rows(three, "key_budgets_of_model", query=STUDY.query)
    counted = three.sql("SELECT layer, head, avg(n_90) FROM attention_rows WHERE query = 23 GROUP BY ALL").fetchall()
    means = {(layer, head): mean for layer, head, mean in counted}
    assert row["n_90"] == pytest.approx(sum(means.values()) / len(means))
    for end, best in (("fewest", min), ("most", max)):
        assert row[end]["n_90"] == means[row[end]["layer"], row[end]["head"]] == best(means.values())
        assert row[end]["low"] < row[end]["n_90"] < row[end]["high"]
    told = describe_key_budgets([row], [])
    assert told in figures_of(three, STUDY)["convergence-uniform"].finding
    assert told.startswith(f"To keep 90 % of its weight, the mean head keeps {number(row['n_90'])} (")


def test_heads_with_windows_keep_keys_of_their_own_number() -> None:
    wide = {"layer": 1, "head": 0, "n_keys": 96.0, "n_90": 40.0, "low": 30.0, "high": 50.0, "sequences": 3}
    narrow = wide | {"layer": 0, "n_keys": 32.0, "n_90": 1.0, "low": 1.0, "high": 1.0}
    row = {"heads": 2, "n_keys": 64.0, "n_90": 20.5, "low": 15.5, "high": 25.5, "fewest": narrow, "most": wide}
    assert describe_key_budgets([row], []) == (
        "To keep 90 % of its weight, the mean head keeps 20.5 (15.5 to 25.5) of the 64 keys that a head has on "
        "average, from 1 (same without any one of 3 sequences) of 32 in layer 0, head 0 to 40 (30 to 50) of 96 in "
        "layer 1, head 0."
    )
    shares = {"n_keys": 96, "least_keys": 32, "effective_share": 0.25, "n_90_share": 0.5}
    assert limits.describe_convergence([shares], []).startswith("With up to 96 keys, the mean head")


def test_budgets_of_geometry_are_compared_with_those_of_the_weight() -> None:
    one = {"layer": 0, "head": 0, "n_keys": 8.0, "n_90": 2.0, "low": 1.5, "high": 2.5, "sequences": 3}
    row = {"heads": 1, "n_keys": 8.0, "n_90": 2.0, "low": None, "high": None, "fewest": one, "most": one}
    recall = {"measure": "recall_less_n_90", "value": -0.02, "value_low": -0.03, "value_high": -0.01}
    elbow = {"measure": "elbow_less_n_90", "value": 0.01, "value_low": -0.02, "value_high": 0.04}
    assert describe_key_budgets([row], [recall, elbow]) == (
        "To keep 90 % of its weight, the mean head keeps 2 of the 8 keys. At equal cost the loss, minus that with N in "
        "proportion to these, is with N by Recall −0.02 (−0.03 to −0.01) and with N by elbow 0.01 (−0.02 to 0.04) nats."
    )
    assert describe_key_budgets([row], [recall | {"value": None}]) == describe_key_budgets([row], [])
    assert describe_key_budgets([], [recall]) == ""
