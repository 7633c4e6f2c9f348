"""The checks of the limits of selection: silent for a possible study, not for any way of breaking it; and their views.

What does not belong here: how the numbers are computed (``tests.dagster_project.test_limits``).
"""

from typing import Any

import duckdb
import numpy as np
import pytest

from geometry.limits.distances import critical_n, random_subset_distance
from geometry.limits.jacobian import bounds_held
from tests.made_up import MadeUp, warehouse
from tests.sql.checking import violations

SINGLE = MadeUp("single", queries=(0, 5), layers=1, sequences=1)
"""One sequence, and a query that sees one key."""
HEAD = "query = 11 AND layer = 1 AND head = 2"
ONE = f"sequence = 1 AND {HEAD}"
PAIR = "layer = 1 AND head = 2"
COLD = f"{HEAD} AND temperature = 0.25"
MIDDLE = f"{HEAD} AND temperature = 1"

FITS = (
    "status = 'other'",
    "slope = NULL",
    "status = 'too_few'",
    "intercept = NULL",
    "slope = 'inf', slope_low = NULL, slope_high = NULL, slope_se = NULL",
    "slope_se = -0.1",
    "points = -1",
    "points = 1, clusters = 1",
    "clusters = 1",
    "clusters = 25",
    "slope_se = NULL",
    "slope_low = NULL",
    "slope_high = NULL",
    "slope_low = slope + 0.01",
    "r2 = 1.001",
    "measure = 'other'",
)

BROKEN = {
    "every_distance_mean_once": [
        f"DELETE FROM distance_means WHERE {HEAD}",
        f"DELETE FROM distance_means WHERE {HEAD} AND n = 3",
        f"DELETE FROM attention_rows WHERE {HEAD}",
        f"INSERT INTO distance_means FROM distance_means WHERE {HEAD} AND n = 3",
        "DELETE FROM distance_means_model WHERE query = 11 AND n = 3",
        "INSERT INTO distance_means_model FROM distance_means_model WHERE query = 11 AND n = 3",
        "UPDATE distance_means_model SET n = n + 1 WHERE query = 11",
        "UPDATE distance_means_model SET relative_distance = NULL WHERE query = 11 AND n = 3",
        "UPDATE distance_means_model SET relative_distance = -1 WHERE query = 11 AND n = 3",
        "UPDATE distance_means_model SET heads = 0 WHERE query = 11 AND n = 3",
        *(
            f"UPDATE distance_means SET {change} WHERE {HEAD} AND n = 3"
            for change in (
                "n = 4",
                "n = 99",
                "n = 0",
                "distance = 'inf'",
                "distance = -1e-9",
                "random_distance = 'nan'",
                "random_distance = -1e-9",
                "relative_distance = 'inf'",
                "relative_random_distance = -1e-9",
                "distance_se = NULL",
                "distance_se = -1e-9",
                "relative_distance_se = -1e-9",
                "sequences = 1",
            )
        ),
    ],
    "distances_as_selected": [
        f"DELETE FROM distance_means WHERE {HEAD} AND n = 4",
        f"UPDATE distance_means SET distance = distance * (1 + 1e-5) WHERE {HEAD} AND n = 4",
        f"UPDATE distance_means SET random_distance = random_distance * (1 - 1e-5) WHERE {HEAD} AND n = 4",
        f"UPDATE selection_counts SET distance_rest = distance_rest * 1.001 WHERE {ONE} AND n = 4",
        f"UPDATE attention_rows SET norm_output = norm_output * 1.001 WHERE {ONE}",
        f"UPDATE attention_rows SET norm_contributions = norm_contributions * 1.001 WHERE {ONE}",
    ],
    "fits_in_domain": [
        *(f"UPDATE distance_fits SET {change} WHERE {HEAD}" for change in FITS),
        *(f"UPDATE distance_fits_model SET {change} WHERE query = 11" for change in FITS),
        *(f"UPDATE convergence_fits SET {change} WHERE {PAIR}" for change in FITS),
        *(f"UPDATE convergence_fits_model SET {change}" for change in FITS),
        f"UPDATE distance_fits SET axis = 'other' WHERE {HEAD}",
        f"UPDATE distance_fits SET query = NULL WHERE {HEAD}",
        f"UPDATE distance_fits SET n = 4 WHERE {HEAD}",
        f"UPDATE distance_fits SET axis = 'n_keys' WHERE {HEAD}",
        f"UPDATE distance_fits SET axis = 'n_keys', query = NULL WHERE {HEAD}",
    ],
    "convergence_in_range": [
        f"DELETE FROM convergence WHERE {HEAD}",
        "DELETE FROM convergence_model WHERE query = 11",
        f"DELETE FROM attention_rows WHERE {HEAD}",
        f"INSERT INTO convergence FROM convergence WHERE {HEAD}",
        "INSERT INTO convergence_model FROM convergence_model WHERE query = 11",
        *(
            f"UPDATE convergence SET {change} WHERE {HEAD}"
            for change in (
                "head = 9",
                "n_keys = n_keys - 1",
                "effective_share = 0.99 / n_keys",
                "effective_share = 1.0001",
                "n_90_share = 0.99 / n_keys",
                "n_90_share = 1.0001",
                "largest_deviation = -0.001",
                "largest_deviation = 1 - 0.99 / n_keys",
                "effective_share_se = NULL",
                "sequences = 1",
            )
        ),
        *(
            f"UPDATE convergence_model SET {change} WHERE query = 11"
            for change in (
                "effective_share = 0",
                "n_90_share = 1.0001",
                "largest_deviation = 1.001",
                "effective_share_p10 = effective_share_p90 + 0.1",
                "n_90_share_p90 = n_90_share_p10 - 0.1",
                "largest_deviation_p90 = largest_deviation_p10 - 0.1",
            )
        ),
    ],
    "temperatures_in_range": [
        f"DELETE FROM temperature_means WHERE {MIDDLE}",
        f"DELETE FROM temperature_means WHERE {MIDDLE} AND n = 4",
        f"DELETE FROM temperature_means WHERE {MIDDLE} AND n = 11",
        f"DELETE FROM temperature_concentration WHERE {MIDDLE}",
        f"DELETE FROM temperature_concentration WHERE {HEAD}",
        f"INSERT INTO temperature_means FROM temperature_means WHERE {MIDDLE} AND n = 4",
        *(
            f"UPDATE temperature_means SET {change} WHERE {MIDDLE} AND n = 4"
            for change in (
                "n = 3",
                "n = 2",
                "temperature = 3",
                "precision = 0.333",
                "precision = 1.0001",
                "recall = -1e-9",
                "recall = 1.0001",
                "specificity = -1e-9",
                "specificity = 1.0001",
                "auc = -1e-9",
                "auc = 1.0001",
                "distance = -1",
                "distance = 'inf'",
                "random_distance = 'nan'",
                "recall_gain_se = -1e-9",
                "auc_gain_se = -1e-9",
                "sequences = 1",
            )
        ),
        *(
            f"UPDATE temperature_concentration SET {change} WHERE {MIDDLE}"
            for change in (
                "effective_keys = 0.99",
                "effective_keys = 12.1",
                "top_weight = 0.9",
                "top_weight = -0.1",
                "n_50 = 2",
                "n_90 = 2",
                "n_99 = 12.5",
                "underflowed = -1",
                "underflowed = 12",
                "sequences = 1",
            )
        ),
        f"UPDATE temperature_concentration SET top_weight = 1.1 WHERE {COLD}",
        f"UPDATE temperature_concentration SET effective_keys = 11.9 WHERE {COLD}",  # more than where it is warmer
    ],
    "sensitivity_in_range": [
        f"DELETE FROM sensitivity WHERE {ONE}",
        f"DELETE FROM sensitivity WHERE {ONE} AND temperature = 1",
        f"DELETE FROM attention_rows WHERE {ONE}",
        f"INSERT INTO sensitivity FROM sensitivity WHERE {ONE} AND temperature = 1",
        f"UPDATE sensitivity SET temperature = 0.25 WHERE {ONE} AND temperature = 1",
        f"UPDATE sensitivity SET temperature = 0 WHERE {ONE} AND temperature = 1",
        f"UPDATE sensitivity SET spectral_norm = -1e-9 WHERE {ONE} AND temperature = 1",
        f"UPDATE sensitivity SET spectral_norm = 0.5 * (1 + 1e-14) WHERE {ONE} AND temperature = 1",
        f"UPDATE sensitivity SET spectral_norm = 2 * (1 + 1e-14) WHERE {ONE} AND temperature = 0.25",
        f"UPDATE sensitivity SET spectral_norm = 'nan' WHERE {ONE} AND temperature = 1",
    ],
    "weights_within_logit_range": [
        f"DELETE FROM logit_range WHERE {ONE}",
        f"DELETE FROM attention_rows WHERE {ONE}",
        *(
            f"UPDATE logit_range SET {change} WHERE {ONE}"
            for change in (
                "n_keys = n_keys - 1",
                "query_norm = NULL",
                "key_norm = NULL",
                "query_norm = 0.1",
                "key_norm = 0.1",
                "query_norm = -query_norm, key_norm = -key_norm",
                "key_norm = 'inf', logit_cap = NULL",
                "logit_cap = 0.3",
                "logit_cap = -1",
                "least_weight = -0.001, underflowed = 1",
                "least_weight = 0",
                "least_weight = 1.001 / n_keys",
                "largest_weight = 0.999 / n_keys",
                "query_norm = 9, largest_weight = 1.001",
                "underflowed = 1",
                "least_weight = 0, underflowed = 1",  # with norms this small no weight underflows
            )
        ),
    ],
}
"""For each check, changes to a possible study that it must find."""

HARMLESS = {
    "sensitivity_in_range": [
        "UPDATE sensitivity SET spectral_norm = 0.5 / temperature",
        "DELETE FROM temperature_means",
    ],
    "weights_within_logit_range": [
        "UPDATE logit_range SET query_norm = NULL, key_norm = NULL",
        "UPDATE logit_range SET query_norm = 30, logit_cap = NULL, least_weight = 0, underflowed = 3",
        "UPDATE logit_range SET query_norm = 'inf', key_norm = 'inf', logit_cap = 5",
    ],
    "distances_as_selected": ["UPDATE distance_means SET distance = distance + 1 WHERE n = 3"],
    "every_distance_mean_once": ["UPDATE distance_means SET relative_distance = NULL, relative_random_distance = NULL"],
    "temperatures_in_range": [
        "; ".join(f"DELETE FROM temperature_{table} WHERE temperature = 1" for table in ("means", "concentration")),
        "UPDATE temperature_concentration SET effective_contributors = NULL",
    ],
}
"""Rare but possible: two keys that share all the weight, no norms, weights that underflow."""


def named(connection: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    """Rows by the names of their columns."""
    rows: list[dict[str, Any]] = connection.sql(query).to_arrow_table().to_pylist()
    return rows


@pytest.mark.parametrize("check", BROKEN)
def test_a_possible_study_breaks_no_check(good: duckdb.DuckDBPyConnection, check: str) -> None:
    assert violations(good, check) == []


def test_nor_does_one_of_one_sequence_and_one_key() -> None:
    with warehouse(SINGLE) as connection:
        for check in BROKEN:
            assert violations(connection, check, SINGLE.study) == [], check


@pytest.mark.parametrize(("check", "change"), [(check, change) for check in BROKEN for change in BROKEN[check]])
def test_what_is_broken_is_found(changed: duckdb.DuckDBPyConnection, check: str, change: str) -> None:
    changed.execute(change)
    assert violations(changed, check)


@pytest.mark.parametrize(("check", "change"), [(check, change) for check in HARMLESS for change in HARMLESS[check]])
def test_what_is_rare_is_not_broken(changed: duckdb.DuckDBPyConnection, check: str, change: str) -> None:
    changed.execute(change)
    assert violations(changed, check) == []


@pytest.mark.parametrize("check", BROKEN)
def test_another_study_is_left_alone(changed: duckdb.DuckDBPyConnection, check: str) -> None:
    changed.execute(BROKEN[check][0])
    assert violations(changed, check, "other") == []


def test_random_selections_are_those_of_the_closed_form(good: duckdb.DuckDBPyConnection) -> None:
    rows = good.execute("""
        SELECT norm_output, norm_contributions, n, rest_distances.n_keys, random_distance
        FROM rest_distances JOIN attention_rows USING (study, sequence, query, layer, head)
    """).fetchnumpy()
    output, contributions, n, n_keys, found = (np.asarray(column, np.float64) for column in rows.values())
    wanted = random_subset_distance(output, contributions, size=n, n_keys=n_keys)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    exchanged = random_subset_distance(contributions, output, size=n, n_keys=n_keys)
    assert np.abs(found - exchanged).max() > 0.1 * found.max()  # mutation control


@pytest.mark.parametrize(("n", "n_keys"), [(0, 4), (4, 4), (5, 4), (1, 1)])
def test_there_is_none_without_keys_on_both_sides(good: duckdb.DuckDBPyConnection, n: int, n_keys: int) -> None:
    assert good.execute("SELECT random_subset_distance(1, 1, ?, ?)", [n, n_keys]).fetchone() == (None,)


def test_the_critical_n_is_the_first_at_which_means_meet(changed: duckdb.DuckDBPyConnection) -> None:
    changed.execute(f"UPDATE distance_means SET distance = 2 * random_distance WHERE {HEAD} AND n < 4")
    changed.execute(f"UPDATE distance_means SET distance = random_distance WHERE {HEAD} AND n >= 4")
    changed.execute("UPDATE distance_means SET distance = random_distance + 1 WHERE layer = 0")
    means = named(changed, "SELECT * FROM distance_means ORDER BY query, layer, head, n")
    found = named(changed, "SELECT * FROM critical_n")
    for row in found:
        mine = [mean for mean in means if all(mean[key] == row[key] for key in ("query", "layer", "head"))]
        distances = ([mean[name] for mean in mine] for name in ("distance", "random_distance"))
        wanted = critical_n(*distances)
        assert row["last_n"] == len(mine)
        assert row["critical_n"] == (None if np.isnan(wanted) else wanted)
        assert row["critical_share"] == (None if np.isnan(wanted) else wanted / (len(mine) + 1))
    assert {row["critical_n"] for row in found if (row["query"], row["layer"], row["head"]) == (11, 1, 2)} == {4}
    assert {row["critical_n"] for row in found if row["layer"] == 0} == {None}


def test_the_band_is_the_one_reported(changed: duckdb.DuckDBPyConnection) -> None:
    for n, recall in enumerate((0.69, 0.7, 0.8, 0.85, 0.86), 1):
        changed.execute(f"UPDATE selection_means SET recall = {recall} WHERE {HEAD} AND n = {n}")
    found = changed.execute(
        f"SELECT within_band, share, band_low, band_high FROM distinguishable_share WHERE {HEAD} AND n <= 5 ORDER BY n"
    ).fetchall()
    assert [row[0] for row in found] == [False, True, True, True, False]
    assert {row[2:] for row in found} == {(0.7, 0.85)}


def test_bounds_hold_as_in_geometry(changed: duckdb.DuckDBPyConnection) -> None:
    changed.execute(f"UPDATE sensitivity SET spectral_norm = 0.5 / temperature WHERE {HEAD}")
    changed.execute("UPDATE sensitivity SET spectral_norm = 0.25 / temperature WHERE query = 11 AND head = 1")
    found = changed.execute(f"""
        SELECT quarter_holds, half_holds, root_holds, reported_holds, closeness
        FROM sensitivity_bounds WHERE {HEAD} ORDER BY temperature
    """).fetchall()
    temperatures = (0.25, 1.0, 4.0)
    held = bounds_held(0.5 / np.array(temperatures), temperatures)
    wanted = [held[name] for name in ("quarter", "half", "root", "reported")]
    np.testing.assert_array_equal(np.array(found)[:, :4], np.array(wanted).T)
    np.testing.assert_allclose(np.array(found)[:, 4], 1, rtol=1e-15)
    tight = "SELECT bool_and(quarter_holds = 1) FROM sensitivity_bounds WHERE query = 11 AND head = 1"
    assert changed.execute(tight).fetchone() == (True,)


def test_the_interval_is_that_of_the_norms(changed: duckdb.DuckDBPyConnection) -> None:
    changed.execute(f"UPDATE logit_range SET query_norm = 0.5, key_norm = 4, logit_cap = NULL WHERE {ONE}")
    columns = "n_keys, logit_bound, lower, upper, logit_spread, used, least_weight, largest_weight, holds"
    (row,) = changed.execute(f"SELECT {columns} FROM weight_intervals WHERE {ONE}").fetchall()
    n, bound, lower, upper, spread, used, least, largest, holds = row
    assert bound == pytest.approx(2)
    assert (lower, upper) == pytest.approx((np.exp(-4) / n, min(1, np.exp(4) / n)))
    assert lower <= least <= largest <= upper
    assert spread == pytest.approx(np.log(largest / least))
    assert used == pytest.approx(spread / 4)
    assert holds
    changed.execute(f"UPDATE logit_range SET logit_cap = 1.5 WHERE {ONE}")
    capped = changed.execute(f"SELECT logit_bound FROM weight_intervals WHERE {ONE}").fetchone()
    assert capped == pytest.approx((1.5 * np.tanh(2 / 1.5),))


def test_the_best_temperature_is_that_of_the_largest_mean(changed: duckdb.DuckDBPyConnection) -> None:
    changed.execute(f"UPDATE temperature_means SET auc = 0.95 WHERE {HEAD} AND temperature = 4 AND n = 4")
    changed.execute(f"UPDATE temperature_means SET auc_gain_se = 0.02 WHERE {HEAD} AND temperature = 4 AND n = 4")
    changed.execute(f"UPDATE temperature_means SET auc = 0.9 WHERE {HEAD} AND temperature < 4 AND n = 4")
    changed.execute(f"UPDATE temperature_means SET recall = 0.5 WHERE {HEAD}")  # all equal: the model's own
    columns = "n, temperature, value, value_at_1, gain, gain_se"
    (auc,) = changed.execute(f"SELECT {columns} FROM best_temperature(7) WHERE {HEAD}").fetchall()
    assert auc == pytest.approx((4, 4, 0.95, 0.9, 0.05, 0.02))
    (recall,) = changed.execute(
        f"SELECT {columns} FROM best_temperature(4, measure := 'recall') WHERE {HEAD}"
    ).fetchall()
    assert recall[:5] == (4, 1, 0.5, 0.5, 0)
    changed.execute("DELETE FROM temperature_means WHERE temperature = 1")
    (cold,) = changed.execute(f"SELECT {columns} FROM best_temperature(4, measure := 'recall') WHERE {HEAD}").fetchall()
    assert cold[:5] == (4, 0.25, 0.5, None, None)


@pytest.mark.parametrize(
    ("call", "message"),
    [("best_temperature(0)", "at_n must be 1 or more"), ("best_temperature(measure := 'loss')", "'auc' or 'recall'")],
)
def test_what_cannot_be_asked_is_refused(good: duckdb.DuckDBPyConnection, call: str, message: str) -> None:
    with pytest.raises(duckdb.InvalidInputException, match=message):
        good.execute(f"FROM {call}").fetchall()
