"""The views and macros of the limits of selection, against plain readings and the functions of ``geometry``.

What does not belong here: how the numbers are computed (``tests.dagster_project.test_limits``).
"""

import duckdb
import numpy as np
import pytest

from geometry.limits import random_subset_distance
from tests.sql.hand_made import rows_of

HEAD = "query = 11 AND layer = 1 AND head = 2"


def test_random_selections_are_those_of_the_closed_form(good: duckdb.DuckDBPyConnection) -> None:
    rows = good.execute("""
        SELECT
            norm_output, norm_contributions, n, counts.n_keys,
            random_subset_distance(norm_output, norm_contributions, n, counts.n_keys)
        FROM selection_counts AS counts JOIN attention_rows USING (study, sequence, query, layer, head)
    """).fetchnumpy()
    output, contributions, n, n_keys, found = (np.asarray(column, np.float64) for column in rows.values())
    wanted = random_subset_distance(output, contributions, size=n, n_keys=n_keys)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    exchanged = random_subset_distance(contributions, output, size=n, n_keys=n_keys)
    assert np.abs(found - exchanged).max() > 0.1 * found.max()  # mutation control


def test_convergence_is_the_mean_concentration_over_the_number_of_keys(good: duckdb.DuckDBPyConnection) -> None:
    parts: dict[tuple[int, ...], list[tuple[float, ...]]] = {}
    for *place, n_keys, effective, n_90, deviation in good.sql(
        "SELECT query, layer, head, n_keys, effective_keys, n_90, largest_deviation "
        "FROM attention_rows WHERE n_keys > 1"
    ).fetchall():
        parts.setdefault(tuple(place), []).append((n_keys, effective / n_keys, n_90 / n_keys, deviation))
    columns = "query, layer, head, n_keys, effective_share, n_90_share, largest_deviation"
    found = {row[:3]: row[3:] for row in good.sql(f"SELECT {columns} FROM convergence").fetchall()}
    assert found.keys() == parts.keys()
    for place, row in found.items():
        assert row == pytest.approx(tuple(np.mean(parts[place], axis=0)), rel=1e-9)


@pytest.mark.parametrize(("n", "n_keys"), [(0, 4), (4, 4), (5, 4), (1, 1)])
def test_there_is_none_without_keys_on_both_sides(good: duckdb.DuckDBPyConnection, n: int, n_keys: int) -> None:
    assert good.execute("SELECT random_subset_distance(1, 1, ?, ?)", [n, n_keys]).fetchone() == (None,)


def test_the_critical_n_is_the_first_at_which_means_meet(changed: duckdb.DuckDBPyConnection) -> None:
    random = "relative_random_distance"
    changed.execute(f"UPDATE selection_means SET relative_distance = 2 * {random} WHERE {HEAD} AND n < 4")
    changed.execute(f"UPDATE selection_means SET relative_distance = {random} WHERE {HEAD} AND n >= 4")
    changed.execute(f"UPDATE selection_means SET relative_distance = {random} + 1 WHERE layer = 0")
    means = rows_of(changed, "selection_means")
    found = rows_of(changed, "critical_n")
    for row in found:
        mine = [mean for mean in means if all(mean[key] == row[key] for key in ("query", "layer", "head"))]
        distances = [[mean[name] for mean in mine] for name in ("relative_distance", random)]
        met = np.flatnonzero(np.array(distances[0]) <= np.array(distances[1]) * (1 + 1e-6)) + 1
        wanted = int(met[0]) if met.size else None
        assert row["last_n"] == len(mine)
        assert row["critical_n"] == wanted
        assert row["critical_share"] == (None if wanted is None else wanted / (len(mine) + 1))
        assert row["nearest_n"] == int(np.argmin(distances[0])) + 1
    assert {row["critical_n"] for row in found if (row["query"], row["layer"], row["head"]) == (11, 1, 2)} == {4}
    assert {row["critical_n"] for row in found if row["layer"] == 0} == {None}


def test_bounds_hold_as_in_geometry(changed: duckdb.DuckDBPyConnection) -> None:
    changed.execute(f"UPDATE sensitivity SET spectral_norm = 0.5 / temperature WHERE {HEAD}")
    changed.execute("UPDATE sensitivity SET spectral_norm = 0.25 / temperature WHERE query = 11 AND head = 1")
    found = changed.execute(f"""
        SELECT quarter_holds, half_holds, root_holds, reported_holds, closeness
        FROM sensitivity_bounds WHERE {HEAD} ORDER BY temperature
    """).fetchall()
    temperatures = (0.5, 1.0, 2.0)
    wanted = [[False, True, 0.5 / t <= 2**0.5, False] for t in temperatures]  # 1/(2T) is half, twice a quarter
    np.testing.assert_array_equal(np.array(found)[:, :4], wanted)
    np.testing.assert_allclose(np.array(found)[:, 4], 1, rtol=1e-15)
    tight = "SELECT bool_and(quarter_holds = 1) FROM sensitivity_bounds WHERE query = 11 AND head = 1"
    assert changed.execute(tight).fetchone() == (True,)


def test_the_best_temperature_is_that_of_the_largest_mean(changed: duckdb.DuckDBPyConnection) -> None:
    changed.execute(f"UPDATE temperature_means SET auc = 0.9, auc_gain_low = 0.1, auc_gain_high = 0.2 WHERE {HEAD}")
    best = "auc = 0.95, auc_gain_low = 0.02, auc_gain_high = 0.08"
    changed.execute(f"UPDATE temperature_means SET {best} WHERE {HEAD} AND temperature = 2 AND n = 4")
    changed.execute(f"UPDATE temperature_means SET recall = 0.5 WHERE {HEAD}")  # all equal: the model's own
    columns = "n, temperature, value, value_at_1, gain, gain_low, gain_high"
    (auc,) = changed.execute(f"SELECT {columns} FROM best_temperature(5) WHERE {HEAD}").fetchall()
    assert auc == pytest.approx((4, 2, 0.95, 0.9, 0.05, 0.02, 0.08))
    asked = f"SELECT {columns} FROM best_temperature(4, measure := 'recall') WHERE {HEAD}"
    assert changed.execute(asked).fetchall()[0][:5] == (4, 1, 0.5, 0.5, 0)
    changed.execute("DELETE FROM temperature_means WHERE temperature = 1")
    assert changed.execute(asked).fetchall()[0][:5] == (4, 0.5, 0.5, None, None)
