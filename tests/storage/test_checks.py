"""Every check of the warehouse finds nothing in a good study and something in each of its ways of being broken."""

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

import sql
from tests.storage import studies

ONE = "sequence = 1 AND layer = 0 AND head = 2 AND n = 5"
HIDDEN = "sequence = 1 AND layer = 1 AND head = 2 AND n = 5"
"""As ``ONE``, but a window hides the sink."""
SINK = "sequence = 0 AND layer = 0 AND head = 3 AND n = 1"
"""Nothing but the sink is selected."""
SEEN = "sequence = 0 AND layer = 0 AND head = 3 AND n = 5"
"""The sink is selected, and others."""
HEAD = "sequence = 1 AND layer = 0 AND head = 2"
BEFORE = f"(SELECT s_in FROM selection_counts WHERE {HEAD} AND n = 4)"
"""The sum of one key fewer than in ``ONE``."""
NO_SCALE = "UPDATE value_scales SET value_scale = 0"
NO_BOUNDS = "UPDATE upper_bounds SET precision_upper = NULL, recall_upper = NULL WHERE layer = 1"

BROKEN = {
    "every_kappa_once": [
        f"DELETE FROM upper_bounds WHERE {ONE} AND kappa = 2",
        f"DELETE FROM upper_bounds WHERE {HEAD} AND kappa = 2",
        f"DELETE FROM upper_bounds WHERE {HEAD} AND kappa = 2 AND n = 1",
        "DELETE FROM upper_bounds",
        f"DELETE FROM attention_rows WHERE {HEAD}",
        f"INSERT INTO upper_bounds FROM upper_bounds WHERE {ONE} AND kappa = 2",
        f"UPDATE upper_bounds SET n = 4 WHERE {ONE} AND kappa = 2",
        f"UPDATE upper_bounds SET n = 99 WHERE {ONE} AND kappa = 2",
        f"UPDATE upper_bounds SET n = n - 1 WHERE {HEAD}",
        f"UPDATE upper_bounds SET n = 0 WHERE {HEAD} AND kappa = 2 AND n = 1",
        f"UPDATE upper_bounds SET kappa = 2.5 WHERE {ONE} AND kappa = 2",
        f"UPDATE upper_bounds SET precision_upper = NULL, recall_upper = NULL WHERE {ONE}",
        "UPDATE upper_bounds SET precision_upper = NULL, recall_upper = NULL",
        f"UPDATE upper_bounds SET precision_upper = 1, recall_upper = 1 WHERE {SINK}",
        f"DELETE FROM selection_counts WHERE {ONE}",
        f"DELETE FROM selection_counts WHERE {HEAD}",
        f"{NO_SCALE}; UPDATE upper_bounds SET scale = 'raw', precision_upper = NULL WHERE {HEAD}",
    ],
    "ingredients_consistent": [
        *(f"UPDATE selection_counts SET {name} = NULL WHERE {ONE}" for name in ("s_in", "a_min_in", "a_max_in")),
        f"UPDATE selection_counts SET rho_out = NULL WHERE {ONE}",
        *(f"UPDATE selection_counts SET {name} = 0 WHERE {SINK}" for name in ("s_in", "a_min_in", "a_max_in")),
        f"UPDATE selection_counts SET rho_out = 0 WHERE {SINK}",
        f"UPDATE selection_counts SET a_0 = NULL WHERE {SINK}",
        f"UPDATE selection_counts SET a_0 = 0 WHERE {HIDDEN}",
        f"UPDATE selection_counts SET a_0 = -1e-9 WHERE {SINK}",
        f"UPDATE selection_counts SET a_max_out = -1e-9 WHERE {ONE}",
        f"UPDATE selection_counts SET a_min_in = -1e-9 WHERE {ONE}",
        f"UPDATE selection_counts SET a_max_in = a_min_in * 0.999, s_in = a_min_in * 4.5, norm_s = 0 WHERE {HIDDEN}",
        "UPDATE selection_counts SET a_min_in = a_max_in * 1.000005 WHERE layer = 1 AND n = 1",
        f"UPDATE selection_counts SET s_in = a_max_in * 0.999, a_min_in = 0, norm_s = 0 WHERE {HIDDEN}",
        f"UPDATE selection_counts SET s_in = a_min_in * 4.999, a_max_in = a_min_in * 2, norm_s = 0 WHERE {HIDDEN}",
        f"UPDATE selection_counts SET s_in = a_max_in * 5.001 WHERE {HIDDEN}",
        f"UPDATE selection_counts SET norm_s_without_sink = s_in * 1.001 WHERE {ONE}",
        f"UPDATE selection_counts SET norm_s = s_in * 1.001 WHERE {HIDDEN}",
        f"UPDATE selection_counts SET rho_out = -0.001 WHERE {ONE}",
        f"UPDATE selection_counts SET rho_out = 1.001 WHERE {ONE}",
    ],
    "ingredients_monotone": [
        f"DELETE FROM selection_counts WHERE {ONE}",
        f"INSERT INTO selection_counts FROM selection_counts WHERE {ONE}",
        *(f"UPDATE selection_counts SET {name} = 7 WHERE {ONE}" for name in ("n", "head", "layer", "sequence")),
        f"UPDATE selection_counts SET a_0 = a_0 * 1.001 WHERE {SEEN}",
        f"UPDATE selection_counts SET a_0 = NULL WHERE {SEEN}",
        f"UPDATE selection_counts SET s_in = {BEFORE} * (1 - 1e-5) WHERE {ONE}",
        f"UPDATE selection_counts SET s_in = s_in * 2 WHERE {ONE}",
        f"UPDATE selection_counts SET a_max_in = a_max_in * 0.001 WHERE {HIDDEN}",
        f"UPDATE selection_counts SET a_min_in = a_min_in * 0.001 WHERE {HIDDEN}",
        f"UPDATE selection_counts SET a_max_out = a_max_out * 0.001 WHERE {ONE}",
        f"UPDATE selection_counts SET a_max_out = a_max_out * 1000 WHERE {ONE}",
        f"UPDATE selection_counts SET s_in = 0 WHERE {ONE}",
    ],
    "rows_of_attention": [
        f"DELETE FROM attention_rows WHERE {HEAD}",
        "DELETE FROM attention_rows",
        f"INSERT INTO attention_rows FROM attention_rows WHERE {HEAD}",
        f"UPDATE attention_rows SET n_keys = 13, sink_attended = false WHERE {HEAD}",
        f"UPDATE attention_rows SET n_keys = 0, sink_attended = false WHERE {HEAD}",
        f"UPDATE attention_rows SET sink_attended = false WHERE {HEAD}",
        "UPDATE attention_rows SET sink_attended = true WHERE layer = 1 AND head = 0",
        f"UPDATE attention_rows SET weight_sum = 0 WHERE {HEAD}",
        f"UPDATE attention_rows SET weight_sum = 1.01 WHERE {HEAD}",
    ],
    "upper_bounds_in_range": [
        f"UPDATE upper_bounds SET precision_upper = NULL WHERE {ONE}",
        f"UPDATE upper_bounds SET recall_upper = NULL WHERE {ONE}",
        f"UPDATE upper_bounds SET precision_upper = 1 - 0.5001 / (n + 1) WHERE {ONE}",
        f"UPDATE upper_bounds SET precision_upper = 1.00001 WHERE {ONE}",
        f"UPDATE upper_bounds SET recall_upper = 0.49999 WHERE {ONE}",
        f"UPDATE upper_bounds SET recall_upper = 1.00001 WHERE {ONE}",
        f"UPDATE upper_bounds SET kappa = 0 WHERE {ONE}",
        f"UPDATE upper_bounds SET scale = 'raw' WHERE {ONE}",
        "UPDATE upper_bounds SET scale = 'other'",
    ],
    "value_scales_once": [
        "DELETE FROM value_scales WHERE sequence = 1 AND layer = 0 AND kv_head = 1",
        "INSERT INTO value_scales FROM value_scales WHERE sequence = 1 AND layer = 0 AND kv_head = 1",
        "UPDATE value_scales SET kv_head = 7 WHERE sequence = 1 AND layer = 0 AND kv_head = 1",
        "UPDATE value_scales SET value_scale = -1 WHERE sequence = 1 AND layer = 0 AND kv_head = 1",
        "UPDATE value_scales SET value_scale = 'inf' WHERE sequence = 1 AND layer = 0 AND kv_head = 1",
    ],
}
"""For each check, statements that break what it looks at."""

HARMLESS = {
    "ingredients_monotone": [
        f"UPDATE selection_counts SET s_in = {BEFORE} * (1 - 5e-7) WHERE {ONE}",
    ],
    "rows_of_attention": ["DELETE FROM selection_counts"],
    "ingredients_consistent": [
        "UPDATE selection_counts SET s_in = 0, a_min_in = 0, a_max_in = 0, norm_s = 0 WHERE layer = 1",
    ],
    "every_kappa_once": [
        "UPDATE attention_rows SET n_keys = 1 WHERE layer = 1; DELETE FROM upper_bounds WHERE layer = 1",
        f"UPDATE selection_counts SET s_in = 0, a_min_in = 0, a_max_in = 0, a_max_out = 0 WHERE layer = 1; {NO_BOUNDS}",
        f"{NO_SCALE}; {NO_BOUNDS}",
    ],
}
"""Rare but possible studies: heads of zeros, and heads that see one key."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with the tables of one small study."""
    folder = tmp_path_factory.mktemp("stores")
    tensors = studies.tensor_store(folder / "tensors.zarr")
    tables = studies.tables(tensors, studies.metrics_store(folder / "metrics.zarr", tensors))
    with duckdb.connect() as connection:
        for name in sql.names("schema"):
            connection.execute(sql.statement("schema", name).text)
        for name, batches in tables.items():
            connection.register("incoming", pa.Table.from_batches(batches))
            connection.execute(f"INSERT INTO {name} BY NAME SELECT 'small' AS study, * FROM incoming")
            connection.unregister("incoming")
        yield connection


@pytest.fixture
def changed(good: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """The same, and what a test changes there is forgotten."""
    good.begin()
    yield good
    good.rollback()


def violations(connection: duckdb.DuckDBPyConnection, check: str) -> list[tuple[object, ...]]:
    return connection.execute(sql.statement("checks", check).text, {"study": "small"}).fetchall()


@pytest.mark.parametrize("check", sql.names("checks"))
def test_a_good_study_breaks_no_check(good: duckdb.DuckDBPyConnection, check: str) -> None:
    assert violations(good, check) == []


@pytest.mark.parametrize(("check", "change"), [(check, change) for check in BROKEN for change in BROKEN[check]])
def test_what_is_broken_is_found(changed: duckdb.DuckDBPyConnection, check: str, change: str) -> None:
    changed.execute(change)
    assert violations(changed, check)


@pytest.mark.parametrize(("check", "change"), [(check, change) for check in HARMLESS for change in HARMLESS[check]])
def test_what_is_rare_is_not_broken(changed: duckdb.DuckDBPyConnection, check: str, change: str) -> None:
    changed.execute(change)
    assert violations(changed, check) == []


def test_another_study_is_none_of_a_checks_business(changed: duckdb.DuckDBPyConnection) -> None:
    for table in ("selection_counts", "upper_bounds", "attention_rows", "value_scales"):
        changed.execute(f"INSERT INTO {table} SELECT * REPLACE ('other' AS study) FROM {table}")
    changed.execute("UPDATE upper_bounds SET kappa = -1, recall_upper = 2 WHERE study = 'other'")
    changed.execute("UPDATE selection_counts SET s_in = -1 WHERE study = 'other'")
    changed.execute("UPDATE value_scales SET value_scale = -1 WHERE study = 'other'")
    changed.execute("UPDATE attention_rows SET weight_sum = 7 WHERE study = 'other'")
    for check in sql.names("checks"):
        assert violations(changed, check) == [], check
