"""Every check of the warehouse finds nothing in a good study and something in each of its ways of being broken."""

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

import sql
from storage.warehouse.relations import create_relations, create_tables, derive
from tests.sql.checking import violations
from tests.storage import studies

ONE = "query = 11 AND sequence = 1 AND layer = 0 AND head = 2 AND n = 5"
HIDDEN = "query = 11 AND sequence = 1 AND layer = 1 AND head = 2 AND n = 5"
"""As ``ONE``, but a window hides the sink."""
SINK = "query = 11 AND sequence = 0 AND layer = 0 AND head = 3 AND n = 1"
"""Nothing but the sink is selected."""
SEEN = "query = 11 AND sequence = 0 AND layer = 0 AND head = 3 AND n = 5"
"""The sink is selected, and others."""
HEAD = "query = 11 AND sequence = 1 AND layer = 0 AND head = 2"
BEFORE = f"(SELECT s_in FROM selection_counts WHERE {HEAD} AND n = 4)"
"""The sum of one key fewer than in ``ONE``."""
HEAD_ONLY = "query = 11 AND layer = 1 AND head = 2"
PAIR = "layer = 0 AND kv_head = 1"
OSCILLATES = "query = 11 AND layer = 1 AND head = 0"
"""A head whose weights have all four phases."""
PLATEAU = "query = 11 AND layer = 0 AND head = 3"
GROWS = "query = 11 AND layer = 0 AND head = 2"
NO_SCALE = "UPDATE value_scales SET value_scale = 0"
WINDOW = "query = 11 AND layer = 1"
"""Where a window hides the sink."""
NO_BOUNDS = f"UPDATE upper_bounds SET precision_upper = NULL, recall_upper = NULL WHERE {WINDOW}"

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
    "identities": [
        f"UPDATE selection_counts SET k_in = -1 WHERE {ONE}",
        f"UPDATE selection_counts SET k_in = n + 1 WHERE {ONE}",
        f"UPDATE selection_counts SET k_out = -1 WHERE {ONE}",
        f"UPDATE selection_counts SET k_out = n_keys - n + 1 WHERE {ONE}",
        f"UPDATE selection_counts SET r_min = -1e-9 WHERE {ONE}",
        f"UPDATE selection_counts SET r_max = 'inf' WHERE {ONE}",
        f"UPDATE selection_counts SET k_in = 0 WHERE {SINK}",
        f"UPDATE selection_counts SET a_0 = -1e-9 WHERE {SINK}",
        f"UPDATE selection_counts SET a_max_out = -1e-9 WHERE {ONE}",
        f"UPDATE selection_counts SET a_min_in = -1e-9 WHERE {ONE}",
        "UPDATE selection_counts SET a_min_in = a_max_in * 1.000005 WHERE layer = 1 AND n = 1",
        f"UPDATE selection_counts SET s_in = a_max_in * 0.999, a_min_in = 0, norm_s = 0 WHERE {HIDDEN}",
        f"UPDATE selection_counts SET rho_out = -0.001 WHERE {ONE}",
        f"UPDATE selection_counts SET rho_out = 1.001 WHERE {ONE}",
        *(
            f"UPDATE selection_counts SET {metric}_lower_scale_free = {value} WHERE {ONE}"
            for metric, value in (
                ("precision", 0),
                ("precision", 1.0001),
                ("precision", "NULL"),
                ("recall", -1e-9),
                ("recall", 1.0001),
                ("recall", "NULL"),
            )
        ),
    ],
    "ingredients_consistent": [
        *(f"UPDATE selection_counts SET {name} = NULL WHERE {ONE}" for name in ("s_in", "a_min_in", "a_max_in")),
        f"UPDATE selection_counts SET rho_out = NULL WHERE {ONE}",
        *(f"UPDATE selection_counts SET {name} = 0 WHERE {SINK}" for name in ("s_in", "a_min_in", "a_max_in")),
        f"UPDATE selection_counts SET rho_out = 0 WHERE {SINK}",
        f"UPDATE selection_counts SET a_0 = NULL WHERE {SINK}",
        f"UPDATE selection_counts SET a_0 = 0 WHERE {HIDDEN}",
        f"UPDATE selection_counts SET a_max_in = a_min_in * 0.999, s_in = a_min_in * 4.5, norm_s = 0 WHERE {HIDDEN}",
        f"UPDATE selection_counts SET s_in = a_min_in * 4.999, a_max_in = a_min_in * 2, norm_s = 0 WHERE {HIDDEN}",
        f"UPDATE selection_counts SET s_in = a_max_in * 5.001 WHERE {HIDDEN}",
        f"UPDATE selection_counts SET norm_s_without_sink = s_in * 1.001 WHERE {ONE}",
        f"UPDATE selection_counts SET norm_s = s_in * 1.001 WHERE {HIDDEN}",
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
        f"UPDATE attention_rows SET weight_sum = 0.6 WHERE {HEAD}",
        f"UPDATE attention_rows SET learned_sink = 0.4 WHERE {HEAD}",
        f"UPDATE attention_rows SET weight_sum = 1.4, learned_sink = -0.4 WHERE {HEAD}",
        f"UPDATE attention_rows SET weight_sum = 0.6, learned_sink = 'NaN' WHERE {HEAD}",
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
    "bound_means_in_range": [
        f"UPDATE bound_means SET {change} WHERE layer = 1 AND head = 2 AND n = 5"
        for change in (
            "precision_lower = 0",
            "precision_lower = 1.0001",
            "recall_lower = -1e-9",
            "recall_lower = 1.0001",
            "f_r_max_lower = 0",
            "f_r_min_lower = -1e-9",
            "f_r_max_upper = 1.0001",
            "precision_upper = -1e-9",
            "recall_upper = 1.0001",
            "recall_lower = NULL",
            "margin = NULL",
            "premise_share = 1.1",
            "premise_share = -0.1",
            "family = 'other', kappa = NULL, scale = NULL",
            "kappa = NULL",
            "scale = NULL",
            "family = 'scale_free'",
        )
    ],
    "cosines_in_range": [
        f"UPDATE cosine_by_distance SET mean_cosine = 1.0001 WHERE {PAIR} AND distance = 3",
        f"UPDATE cosine_by_distance SET mean_cosine = -1.0001 WHERE {PAIR} AND distance = 3",
        f"UPDATE cosine_by_distance SET sd_cosine = -1e-9 WHERE {PAIR} AND distance = 3",
        f"UPDATE sink_similarity SET rho_0 = 1.0001 WHERE {PAIR} AND sequence = 1",
        f"UPDATE sink_similarity SET rho_0 = -1.0001 WHERE {PAIR} AND sequence = 1",
        f"UPDATE sink_similarity SET rho_0_sd = -1e-9 WHERE {PAIR} AND sequence = 1",
    ],
    "elbows_once_and_in_order": [
        f"DELETE FROM elbows WHERE {HEAD_ONLY}",
        f"INSERT INTO elbows FROM elbows WHERE {HEAD_ONLY}",
        "DELETE FROM elbows_model",
        "INSERT INTO elbows_model FROM elbows_model",
        f"UPDATE elbows SET head = 9 WHERE {HEAD_ONLY}",
        f"UPDATE elbows SET status = 'other' WHERE {HEAD_ONLY}",
        f"UPDATE elbows SET status = 'no_decline' WHERE {HEAD_ONLY}",
        f"UPDATE elbows SET elbow_n = 0 WHERE {HEAD_ONLY}",
        f"UPDATE elbows SET elbow_n = lowest_n + 1 WHERE {HEAD_ONLY}",
        "UPDATE elbows SET elbow_n = NULL WHERE status = 'ok'",
        f"UPDATE elbows SET lowest_n = 12 WHERE {HEAD_ONLY}",
        f"UPDATE elbows SET elbow_n = 1, lowest_n = 1 WHERE {HEAD_ONLY}",
        f"UPDATE elbows SET separability = lowest_separability - 0.01 WHERE {HEAD_ONLY}",
        "UPDATE elbows_model SET elbow_n = lowest_n + 1",
    ],
    "every_assumption_once": [
        *(f"DELETE FROM assumption_{name} WHERE {PAIR}" for name in ("norms", "similarity")),
        *(f"INSERT INTO assumption_{name} FROM assumption_{name} WHERE {PAIR}" for name in ("norms", "similarity")),
        f"UPDATE assumption_norms SET kv_head = 7 WHERE {PAIR}",
        f"DELETE FROM assumption_weights WHERE {HEAD_ONLY}",
        f"INSERT INTO assumption_weights FROM assumption_weights WHERE {HEAD_ONLY}",
        f"UPDATE assumption_weights SET query = 7 WHERE {HEAD_ONLY}",
        *(f"DELETE FROM assumption_{name}_model" for name in ("similarity", "weights")),
        *(f"INSERT INTO assumption_{name}_model FROM assumption_{name}_model" for name in ("similarity", "weights")),
    ],
    "every_distance_once": [
        f"DELETE FROM cosine_by_distance WHERE {PAIR} AND distance = 3",
        f"DELETE FROM cosine_by_distance WHERE {PAIR} AND distance = 1",
        f"DELETE FROM cosine_by_distance WHERE {PAIR} AND distance = 10",
        f"DELETE FROM cosine_by_distance WHERE {PAIR}",
        f"INSERT INTO cosine_by_distance FROM cosine_by_distance WHERE {PAIR} AND distance = 3",
        f"UPDATE cosine_by_distance SET distance = 4 WHERE {PAIR} AND distance = 3",
        f"UPDATE cosine_by_distance SET distance = distance - 1 WHERE {PAIR}",
        f"UPDATE cosine_by_distance SET distance = 11 WHERE {PAIR} AND distance = 10",
    ],
    "every_mean_once": [
        f"DELETE FROM selection_means WHERE {HEAD_ONLY} AND n = 5",
        f"DELETE FROM selection_means WHERE {HEAD_ONLY}",
        f"INSERT INTO selection_means FROM selection_means WHERE {HEAD_ONLY} AND n = 5",
        f"UPDATE selection_means SET n = 4 WHERE {HEAD_ONLY} AND n = 5",
        f"UPDATE selection_means SET n = 99 WHERE {HEAD_ONLY} AND n = 5",
        f"UPDATE selection_means SET n = n - 1 WHERE {HEAD_ONLY}",
        f"UPDATE selection_means SET head = 9 WHERE {HEAD_ONLY}",
        "DELETE FROM selection_means_model WHERE n = 5",
        "DELETE FROM selection_means_model",
        "INSERT INTO selection_means_model FROM selection_means_model WHERE n = 5",
        f"DELETE FROM bound_means WHERE {HEAD_ONLY} AND n = 5 AND kappa = 2",
        f"DELETE FROM bound_means WHERE {HEAD_ONLY} AND n = 5 AND family = 'scale_free'",
        "DELETE FROM bound_means WHERE family = 'scale_free'",
        "DELETE FROM bound_means WHERE kappa = 2",
        "UPDATE bound_means SET kappa = 3 WHERE kappa = 2",
    ],
    "means_in_range": [
        f"UPDATE {table} SET {change} WHERE n = 5"
        for table in ("selection_means", "selection_means_model")
        for change in (
            "precision = 0",
            "precision = 1.0001",
            "recall = -1e-4",
            "recall = 1.0001",
            "f_r_max = 0",
            "f_r_max = 1.0001",
            "f_r_min = -1e-4",
            "recall_ci_low = -1e-4",
            "f_r_min_ci_high = 1.0001",
            "precision_ci_low = precision_ci_high + 1e-9",
            "recall_ci_low = recall_ci_high + 1e-9",
            "f_r_max_ci_low = f_r_max_ci_high + 1e-9",
            "f_r_min_ci_low = f_r_min_ci_high + 1e-9",
            "precision_ci_low = NULL",
            "f_r_min_ci_high = NULL",
            "sequences = 1",
        )
    ],
    "norms_in_domain": [
        f"UPDATE assumption_norms SET {change} WHERE {PAIR}"
        for change in (
            "c = 0",
            "c = NULL",
            "c = 'inf', norm_p75 = 'inf', norm_p95 = 'inf'",
            "lambda_sink = -1e-9",
            "lambda_sink = NULL",
            "lambda_sink = 'inf'",
            "status = 'other'",
            "status = 'zero'",
            "status = 'zero', c = 0, norm_p05 = 0, norm_p25 = 0",
            "status = 'too_short'",
            "c_se = -1e-9",
            "cv_of_mean_norm = -1e-9",
            "cv_within_sequence = -1e-9",
            "cv_within_sequence_sd = -1e-9",
            "norm_p05 = -1e-9",
            "norm_p05 = norm_p25 + 1e-9",
            "norm_p25 = c + 1e-9",
            "norm_p75 = c - 1e-9",
            "norm_p95 = norm_p75 - 1e-9",
            "norm_p95 = 'inf'",
        )
    ],
    "every_claim_once": [
        "DELETE FROM claim_estimates WHERE claim = 'premise_holds'",
        "DELETE FROM claim_estimates",
        "INSERT INTO claim_estimates FROM claim_estimates WHERE claim = 'premise_holds'",
        "UPDATE claim_estimates SET claim = 'another' WHERE claim = 'premise_holds'",
        *(
            f"UPDATE claim_estimates SET {change} WHERE reason IS NULL"
            for change in (
                "sequences = 2",
                "low = NULL",
                "high = NULL",
                "low = NULL, high = NULL",
                "value = NULL, low = NULL, high = NULL",
                "low = value + 1e-9",
                "high = value - 1e-9",
                "value = 'inf', high = 'inf'",
                "rows = -1",
                "clusters = -1",
            )
        ),
    ],
    "regimes_contiguous": [
        f"{change} WHERE sequence = 1 AND {where}"
        for change, where in (
            ("DELETE FROM regimes_by_sequence", OSCILLATES),
            ("DELETE FROM regimes_by_sequence", f"{OSCILLATES} AND first_n = 1"),
            ("DELETE FROM regimes_by_sequence", f"{OSCILLATES} AND last_n = 8"),
            ("INSERT INTO regimes_by_sequence FROM regimes_by_sequence", f"{OSCILLATES} AND first_n = 1"),
            ("UPDATE regimes_by_sequence SET first_n = first_n + 1", f"{OSCILLATES} AND last_n = 8"),
            ("UPDATE regimes_by_sequence SET last_n = last_n - 1", f"{OSCILLATES} AND last_n = 8"),
            ("UPDATE regimes_by_sequence SET last_n = last_n + 1", f"{OSCILLATES} AND first_n = 1"),
            ("UPDATE regimes_by_sequence SET first_n = 0", f"{OSCILLATES} AND first_n = 1"),
            ("UPDATE regimes_by_sequence SET regime = 'VI'", f"{OSCILLATES} AND last_n = 8"),
            ("UPDATE regimes_by_sequence SET regime = 'V'", OSCILLATES),
            ("UPDATE regimes_by_sequence SET head = 9", OSCILLATES),
            ("UPDATE regimes_by_sequence SET positive_share = 1.0001", f"{OSCILLATES} AND last_n = 8"),
            ("UPDATE regimes_by_sequence SET positive_share = -1e-4", f"{OSCILLATES} AND last_n = 8"),
        )
    ]
    + [f"UPDATE assumption_weights SET status = 'undefined' WHERE {OSCILLATES}"],
    "scale_free_holds": [
        f"UPDATE monte_carlo SET {metric}_holds = false WHERE family = 'scale_free' AND isinf(beta) AND n = 4"
        for metric in ("precision", "recall")
    ],
    "similarity_in_domain": [
        f"UPDATE {table} SET {change} WHERE {where}"
        for table, where in (("assumption_similarity", PAIR), ("assumption_similarity_model", "true"))
        for change in (
            "beta = -1e-9",
            "beta = 'inf'",
            "beta = NULL",
            "status = 'unbounded'",
            "beta_floor = -1e-9",
            "beta_floor = 'inf'",
            "beta_floor = NULL",
            "floor = NULL",
            "floor = 1",
            "floor = -1",
            "status_floor = 'unbounded'",
            "status_floor = 'constant', beta_floor = NULL",
            "rho_0 = 1.0001",
            "rho_0 = -1.0001",
            "rho_0_sd = -1e-9",
            "beta_se = -1e-9",
            "mae = -1e-9",
            "mae_floor = 'inf'",
            "bic = '-inf'",
            "effective_points = 0.9",
            "effective_points = distances + 1",
            "bic_floor = 'nan'",
            "preferred = 'other'",
        )
    ],
    "weights_in_domain": [
        *(
            f"UPDATE assumption_weights SET {change} WHERE {OSCILLATES}"
            for change in (
                "variant = 'other'",
                "variant = NULL",
                "variant = 'tied'",
                "status = 'undefined'",
                "effective_points = 0.9",
                "effective_points = positions + 1",
                "p_base = NULL",
                "p_base = 0",
                "p_base = 'inf'",
                "p_base_se = -1e-9",
                "eta = NULL",
                "eta = 1",
                "eta = -1",
                "eta_growth = NULL",
                "eta_growth = 'nan'",
                "variant = 'tied', eta = eta_growth, t_2 = query",
                "omega = NULL",
                "omega = 0",
                "omega = 3.1416",
                "t_1 = NULL",
                "t_2 = NULL",
                "t_1 = -1",
                "t_1 = t_2 + 1",
                "t_2 = 12",
                "p_sink = -1e-9",
                "p_sink = 1.0001",
                "mae_log = -1e-9",
            )
        ),
        f"UPDATE assumption_weights SET eta_growth = 0.1 WHERE {PLATEAU}",
        f"UPDATE assumption_weights SET eta = 0.1 WHERE {PLATEAU}",
        f"UPDATE assumption_weights SET omega = 0.1 WHERE {GROWS}",
        f"UPDATE assumption_weights SET t_1 = t_1 - 1 WHERE {GROWS}",
        f"UPDATE assumption_weights SET eta_growth = NULL WHERE {GROWS}",
        "UPDATE assumption_weights_model SET p_base = 0",
        "UPDATE assumption_weights_model SET t_2 = 12",
    ],
}
"""For each check, statements that break what it looks at."""

HARMLESS = {
    "ingredients_monotone": [
        f"UPDATE selection_counts SET s_in = {BEFORE} * (1 - 5e-7) WHERE {ONE}",
    ],
    "rows_of_attention": ["DELETE FROM selection_counts"],
    "ingredients_consistent": [
        f"UPDATE selection_counts SET s_in = 0, a_min_in = 0, a_max_in = 0, norm_s = 0 WHERE {WINDOW}",
    ],
    "every_kappa_once": [
        "UPDATE attention_rows SET n_keys = 1 WHERE layer = 1; DELETE FROM upper_bounds WHERE layer = 1",
        f"UPDATE selection_counts SET s_in = 0, a_min_in = 0, a_max_in = 0, a_max_out = 0 WHERE {WINDOW}; {NO_BOUNDS}",
        f"{NO_SCALE}; {NO_BOUNDS}",
    ],
    "bound_means_in_range": [
        "UPDATE bound_means SET (margin, premise_share, precision_lower, recall_lower) = (NULL, NULL, NULL, NULL)",
    ],
    "elbows_once_and_in_order": [
        "UPDATE elbows SET status = 'no_decline', elbow_n = NULL, separability = NULL, lowest_n = 2",
    ],
    "every_mean_once": ["UPDATE attention_rows SET n_keys = n_keys - 1 WHERE sequence = 0"],
    "norms_in_domain": [
        "UPDATE assumption_norms SET status = 'zero', c = 0, lambda_sink = NULL, norm_p05 = 0, norm_p25 = 0",
        "UPDATE assumption_norms SET c_se = NULL",
    ],
    "scale_free_holds": [
        "UPDATE monte_carlo SET precision_holds = false WHERE NOT (family = 'scale_free' AND meets_assumptions)",
    ],
    "identities": [
        "UPDATE selection_counts SET precision_lower_scale_free = NULL, recall_lower_scale_free = NULL",
    ],
    "similarity_in_domain": [
        "UPDATE assumption_similarity SET status = 'constant', beta = 0",
        "UPDATE assumption_similarity SET status = 'unbounded', beta = NULL, beta_se = NULL",
        "UPDATE assumption_similarity SET status_floor = 'unbounded', beta_floor = NULL, beta_floor_se = NULL",
        "UPDATE assumption_similarity SET rho_0 = NULL, rho_0_sd = NULL, rho_0_se = NULL",
    ],
    "weights_in_domain": [
        "UPDATE assumption_weights SET p_sink = NULL",
        f"UPDATE assumption_weights SET eta = -0.5, bic_growth = NULL WHERE {OSCILLATES}",
        f"UPDATE assumption_weights SET t_1 = 0 WHERE {OSCILLATES}",
        f"UPDATE assumption_weights SET variant = 'tied', eta_growth = NULL, t_2 = query WHERE {OSCILLATES}",
    ],
}
"""Rare but possible studies: heads of zeros, heads that see one key, and data that leave parameters open."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with the tables of one small study."""
    folder = tmp_path_factory.mktemp("stores")
    tensors = studies.tensor_store(folder / "tensors.zarr")
    tables = studies.tables(tensors, studies.metrics_store(folder / "metrics.zarr", tensors))
    with duckdb.connect() as connection:
        create_tables(connection)
        create_relations(connection)
        for name, batches in tables.items():
            connection.register("incoming", pa.Table.from_batches(batches))
            connection.execute(f"INSERT INTO {name} BY NAME SELECT 'small' AS study, * FROM incoming")
            connection.unregister("incoming")
        derive(connection, "small")
        yield connection


@pytest.mark.parametrize("check", sql.list_names("checks"))
def test_a_good_study_breaks_no_check(good: duckdb.DuckDBPyConnection, check: str) -> None:
    assert violations(good, check, "small") == []


@pytest.mark.parametrize(("check", "change"), [(check, change) for check in BROKEN for change in BROKEN[check]])
def test_what_is_broken_is_found(changed: duckdb.DuckDBPyConnection, check: str, change: str) -> None:
    changed.execute(change)
    assert violations(changed, check, "small")


@pytest.mark.parametrize(("check", "change"), [(check, change) for check in HARMLESS for change in HARMLESS[check]])
def test_what_is_rare_is_not_broken(changed: duckdb.DuckDBPyConnection, check: str, change: str) -> None:
    changed.execute(change)
    assert violations(changed, check, "small") == []


def test_another_study_is_none_of_a_checks_business(changed: duckdb.DuckDBPyConnection) -> None:
    for table in ("selection_counts", "upper_bounds", "attention_rows", "value_scales"):
        changed.execute(f"INSERT INTO {table} SELECT * REPLACE ('other' AS study) FROM {table}")
    for table in ("assumption_norms", "elbows", "selection_regimes", "selection_means", "bound_means"):
        changed.execute(f"INSERT INTO {table} SELECT * REPLACE ('other' AS study) FROM {table} WHERE layer = 0")
    changed.execute("UPDATE upper_bounds SET kappa = -1, recall_upper = 2 WHERE study = 'other'")
    changed.execute("UPDATE selection_counts SET s_in = -1 WHERE study = 'other'")
    changed.execute("UPDATE value_scales SET value_scale = -1 WHERE study = 'other'")
    changed.execute("UPDATE attention_rows SET weight_sum = 7 WHERE study = 'other'")
    changed.execute("UPDATE bound_means SET recall_lower = 2 WHERE study = 'other'")
    changed.execute("UPDATE elbows SET elbow_n = 0 WHERE study = 'other'")
    for check in sql.list_names("checks"):
        assert violations(changed, check, "small") == [], check
