"""Every check finds nothing in a possible study, and something in each way of breaking what it looks at.

What does not belong here: the checks that follow from declarations (``tests.sql.test_declared``).
"""

from collections.abc import Iterable

import duckdb
import pytest

import sql
from tests.made_up import SMALL, MadeUp, warehouse
from tests.reports.conftest import DEGENERATE
from tests.sql.checking import STUDY, violations

HEAD = "query = 11 AND layer = 1 AND head = 2"
ROW = f"sequence = 1 AND {HEAD}"
ONE = f"{ROW} AND n = 5"
WINDOW = "query = 23 AND layer = 2"  # Where a window hides the sink
HIDDEN = f"sequence = 1 AND {WINDOW} AND head = 2 AND n = 5"
SINK = "sequence = 0 AND query = 5 AND layer = 2 AND head = 0 AND n = 1"  # Nothing but the sink is selected
PAIR = "layer = 0 AND kv_head = 1"
PLATEAU = "query = 11 AND layer = 0 AND head = 5"
ABLATED = "layer = 1 AND head = 0 AND kind = 'zero'"
CONTRIBUTORS = (
    *("entropy_contributors", "effective_contributors", "top_contribution"),
    *("contributors_50", "contributors_90", "contributors_99"),
    *("top_contributor_position", "top_contributor_role"),
)
"""What is missing together where nothing contributes."""
NO_CONTRIBUTORS = f"UPDATE attention_rows SET {', '.join(f'{name} = NULL' for name in CONTRIBUTORS)} WHERE {ROW}"
NOTHING_SELECTED = "s_in = 0, a_min_in = 0, a_max_in = 0, norm_s = 0, norm_s_without_sink = 0"


def updates(table: str, where: str, *changes: str) -> list[str]:
    """Changes of a few rows of a table."""
    return [f"UPDATE {table} SET {change} WHERE {where}" for change in changes]


BROKEN: dict[str, list[str]] = {
    "attention_consistent": [
        f"DELETE FROM attention_rows WHERE {ROW}",
        "DELETE FROM attention_rows",
        *updates("attention_rows", ROW, *(f"n_keys = {keys}, sink_attended = false" for keys in (0, 13))),
        *updates("attention_rows", ROW, "sink_attended = false", "weight_sum = 0", "weight_sum = 1.01"),
        *updates("attention_rows", ROW, "learned_sink = 0.4", "weight_sum = 1.4, learned_sink = -0.4"),
        *updates("attention_rows", ROW, "weight_sum = 0.6, learned_sink = 'NaN'"),
        *updates("attention_rows", WINDOW, "sink_attended = true"),
        *updates("attention_rows", ROW, *(f"{name} = -1e-9" for name in ("norm_y_0", "norm_y_last", "norm_output"))),
        *updates("attention_rows", ROW, "norm_y_0 = NULL", "total_rest = norm_rest * 0.999", "norm_y_last = 'inf'"),
        *updates("attention_rows", ROW, "norm_output_without_last = 'inf'", "cos_last_p05 = 1.0001", "n_keys = 2"),
        *updates("attention_rows", WINDOW, "norm_y_0 = 0"),
        *updates(
            "attention_rows",
            ROW,
            "entropy_keys = entropy_keys * 1.001",
            *("effective_keys = 0.9, entropy_keys = ln(0.9)", "effective_keys = 12.1, entropy_keys = ln(12.1)"),
            *("entropy_contributors = 'inf'", "effective_contributors = NULL", "top_contribution = NULL"),
            *("top_contributor_role = NULL", "effective_contributors = effective_contributors * 1.001"),
            *("top_weight = 1.1", "top_weight = 0.01", "top_weight = 0.6, n_50 = 2", "n_50 = n_90 + 1"),
            *("n_90 = n_99 + 1", "n_99 = n_keys + 1", "contributors_50 = 0", "largest_deviation = -0.1"),
            *("largest_deviation = 1", "top_position = 12", "top_position = -1", "top_position = 3"),
            "top_role = CASE top_role WHEN 'sink' THEN 'last' ELSE 'sink' END",
            "top_contributor_position = 12",
            "top_contributor_role = CASE top_contributor_role WHEN 'sink' THEN 'last' ELSE 'sink' END",
        ),
        NO_CONTRIBUTORS,
    ],
    "selections_consistent": [
        *updates("selection_counts", ONE, "k_in = -1", "k_in = n + 1", "k_out = -1", "k_out = n_keys - n + 1"),
        *updates("selection_counts", ONE, "r_min = -1e-9", "r_max = 'inf'", "a_max_out = -1e-9", "a_min_in = -1e-9"),
        *updates("selection_counts", ONE, "rho_out = -0.001", "rho_out = 1.001"),
        *updates("selection_counts", ONE, *(f"precision_lower_scale_free = {value}" for value in (0, 1.0001, "NULL"))),
        *updates("selection_counts", ONE, *(f"recall_lower_scale_free = {end}" for end in (-1e-9, 1.0001, "NULL"))),
        *updates("selection_counts", SINK, "k_in = 0", "a_0 = -1e-9"),
        *updates("selection_counts", HIDDEN, "s_in = a_max_in * 0.999, a_min_in = 0, norm_s = 0"),
        *updates("selection_counts", ONE, "k_out = 0, k_in = n, r_max = r_min * 1.001", "k_out = 0, k_in = n - 1"),
        *updates("selection_counts", ONE, "k_out = 1, r_max = r_min * 0.999"),
        *updates("selection_counts", ONE, *(f"{name} = NULL" for name in ("s_in", "a_min_in", "a_max_in", "rho_out"))),
        *updates("selection_counts", SINK, "s_in = 0", "a_max_in = 0", "a_min_in = 0", "rho_out = 0", "a_0 = NULL"),
        *updates("selection_counts", ONE, "norm_s_without_sink = s_in * 1.001"),
        *updates("selection_counts", HIDDEN, "a_0 = 0", "norm_s = s_in * 1.001, norm_s_without_sink = NULL"),
        *updates("selection_counts", HIDDEN, "a_max_in = a_min_in * 0.999, s_in = a_min_in * 4.5, norm_s = 0"),
        *updates("selection_counts", HIDDEN, "s_in = a_min_in * 4.999, a_max_in = a_min_in * 2, norm_s = 0"),
        *updates("selection_counts", HIDDEN, "s_in = a_max_in * 5.001"),
    ],
    "ablation_of_every_head": [
        f"DELETE FROM head_ablation WHERE {ABLATED}",
        *updates("head_ablation", ABLATED, "head = 9", "kind = 'other'", "kl = NULL", "delta_loss = NULL, kl = NULL"),
    ],
    "bound_means_in_range": updates(
        "bound_means",
        "layer = 1 AND head = 2 AND n = 5",
        *("precision_lower = 0", "f_r_max_lower = 0", "recall_lower = -1e-9", "f_r_min_lower = -1e-9"),
        *("recall_lower = NULL", "margin = NULL", "family = 'other', kappa = NULL, scale = NULL"),
        *("kappa = NULL", "scale = NULL", "family = 'scale_free'"),
    ),
    "directions_in_ball": [
        *updates("values_by_position", f"{PAIR} AND position = 3", "position = -1", "position = 24"),
        *updates(
            "values_by_position", f"{PAIR} AND position = 3", "kv_head = 9", "x = 'nan'", "x = 0, y = 0, z = 1.01"
        ),
        *updates("principal_directions", PAIR, "status = 'zero'"),
        f"DELETE FROM principal_directions WHERE {PAIR}",
    ],
    "every_n_once": [
        change
        for table, where in (("selection_counts", ONE), ("upper_bounds", f"{ONE} AND kappa = 2"))
        for change in (
            f"DELETE FROM {table} WHERE {where}",
            f"INSERT INTO {table} FROM {table} WHERE {where}",
            *updates(table, where, "n = 4", "n = 99", "n = 0", "head = 9"),
        )
    ]
    + updates("selection_counts", ROW, "n_keys = n_keys + 1"),
    "ingredients_monotone": [
        f"DELETE FROM selection_counts WHERE {ONE}",
        f"INSERT INTO selection_counts FROM selection_counts WHERE {ONE}",
        *updates("selection_counts", ONE, *(f"{name} = 7" for name in ("n", "head", "layer", "sequence", "query"))),
        *updates("selection_counts", f"{ROW} AND n = 11", "a_0 = a_0 * 1.001", "a_0 = NULL"),
        *updates("selection_counts", ONE, "s_in = 0", "s_in = s_in * 9", "a_max_in = 0", "a_min_in = 0"),
        *updates("selection_counts", ONE, "a_max_out = a_max_out * 0.001", "a_max_out = a_max_out * 1000"),
    ],
    "norms_in_domain": [
        *updates("assumption_norms", PAIR, "c = 0", "c = NULL", "lambda_sink = NULL", "lambda_sink = -1e-9"),
        *updates(
            "assumption_norms", PAIR, "status = 'other'", "status = 'zero'", "status = 'zero', lambda_sink = NULL"
        ),
    ],
    "queries_consistent": [
        *updates("query_heads", ROW, "n_keys = 13", "n_keys = 11", "top_position = 12", "top_position = -1"),
        *updates("query_heads", ROW, "recall_level = 1.1", "effective_keys = 0.5", "output_norm = 'inf'"),
        *updates("query_heads", ROW, "top_positions = list_reverse(top_positions)", "top_weights = [0.5]"),
        *updates("query_heads", ROW, "top_positions = top_positions[:3]"),
        *updates("query_heads", "query = 23 AND layer = 2 AND head = 1 AND sequence = 1", "top_position = 0"),
    ],
    "scale_free_holds": [
        f"UPDATE monte_carlo SET {metric}_holds = false WHERE family = 'scale_free' AND isinf(beta) AND n = 4"
        for metric in ("precision", "recall")
    ],
    "sensitivity_in_range": [
        f"DELETE FROM attention_rows WHERE {ROW}",
        *updates("sensitivity", f"{ROW} AND temperature = 1", "head = 9", "temperature = 0"),
        *updates("sensitivity", f"{ROW} AND temperature = 1", "spectral_norm = -1e-9", "spectral_norm = 'nan'"),
        *updates("sensitivity", ROW, "spectral_norm = 0.5 / temperature * (1 + 1e-14)"),
    ],
    "similarity_in_domain": [
        change
        for where in (PAIR, "layer IS NULL")
        for change in updates(
            "assumption_similarity",
            where,
            *("beta = -1e-9", "beta = NULL", "status = 'unbounded'", "beta_floor = -1e-9", "beta_floor = NULL"),
            *("floor = NULL", "floor = 1", "floor = -1", "status_floor = 'unbounded'", "mae = -1e-9"),
            *(
                "status_floor = 'constant', beta_floor = NULL",
                "effective_points = distances + 1",
                "preferred = 'other'",
            ),
        )
    ],
    "sparsified_in_range": [
        "DELETE FROM sparsified_loss WHERE policy = 'same_n' AND budget = 0.5",
        *updates("sparsified_loss", "policy = 'elbow' AND budget = 0.5", "needs = 'luck'", "budget = 0.3"),
        *updates("sparsified_loss", "policy = 'same_n' AND budget = 0.5", "excess_loss = 1e-12"),
    ],
    "upper_bounds_in_range": [
        *updates("upper_bounds", ONE, "precision_upper = NULL", "recall_upper = NULL", "precision_upper = 1.00001"),
        *updates("upper_bounds", ONE, "precision_upper = 1 - 0.5001 / (n + 1)", "recall_upper = 0.49999"),
        *updates("upper_bounds", ONE, "recall_upper = 1.00001", "kappa = 0", "kappa = 'inf'", "scale = 'raw'"),
        "UPDATE upper_bounds SET scale = 'other'",
    ],
    "weights_in_domain": [
        *updates(
            "assumption_weights",
            HEAD,
            *("variant = 'other'", "variant = NULL", "variant = 'tied'", "variant = 'plateau'", "status = 'undefined'"),
            *("effective_points = positions + 1", "p_base = NULL", "t_1 = NULL", "t_2 = NULL", "p_sink = 1.0001"),
            *("t_1 = t_2 - 1", "t_1 = t_2 + 1", "t_1 = -1, t_2 = -1", "t_1 = 12, t_2 = 12", "eta_growth = NULL"),
            *("eta = 0.1", "omega = 0.1"),
            *(
                f"variant = 'untied', t_1 = 1, {changed}"
                for changed in ("eta = 1, omega = 1", "eta = -1, omega = 1", "omega = 1", "eta = 0.1")
            ),
            *(f"variant = 'untied', eta = 0.1, omega = {omega}" for omega in (0, 3.1416)),
            "variant = 'tied', eta = eta_growth + 0.1, omega = 1",
        ),
        *updates("assumption_weights", PLATEAU, "eta_growth = 0.1", "variant = 'growth', t_1 = 4, t_2 = 4"),
        *updates("assumption_weights", "query = 23 AND layer IS NULL", "t_2 = 24", "p_base = NULL"),
    ],
}
"""For each check, statements that break what it looks at."""

HARMLESS: dict[str, list[str]] = {
    "attention_consistent": [
        "DELETE FROM selection_counts",
        *updates("attention_rows", ROW, "norm_y_0 = 0, norm_y_last = 0, norm_rest = 0, total_rest = 0"),
        *updates("attention_rows", ROW, "norm_rest = total_rest * (1 + 5e-6)"),
        f"UPDATE attention_rows SET norm_contributions = 0 WHERE {ROW}; {NO_CONTRIBUTORS}",
        *updates("attention_rows", ROW, "effective_keys = effective_keys * (1 + 1e-6)"),
    ],
    "selections_consistent": [
        "UPDATE selection_counts SET precision_lower_scale_free = NULL, recall_lower_scale_free = NULL",
        *updates("selection_counts", ONE, NOTHING_SELECTED),
    ],
    "ablation_of_every_head": ["DELETE FROM head_ablation"],
    "bound_means_in_range": [
        "UPDATE bound_means SET (margin, premise_share, precision_lower, recall_lower) = (NULL, NULL, NULL, NULL)",
    ],
    "directions_in_ball": [f"UPDATE values_by_position SET x = NULL, y = NULL, z = NULL WHERE {PAIR}"],
    "ingredients_monotone": updates(
        "selection_counts", ONE, f"s_in = (SELECT s_in FROM selection_counts AS s WHERE {ROW} AND n = 4) * (1 - 5e-7)"
    ),
    "norms_in_domain": ["UPDATE assumption_norms SET status = 'zero', c = 0, lambda_sink = NULL"],
    "scale_free_holds": [
        "UPDATE monte_carlo SET precision_holds = false WHERE NOT (family = 'scale_free' AND meets_assumptions)",
    ],
    "sensitivity_in_range": ["UPDATE sensitivity SET spectral_norm = 0.5 / temperature"],
    "similarity_in_domain": [
        "UPDATE assumption_similarity SET status = 'constant', beta = 0",
        "UPDATE assumption_similarity SET status = 'unbounded', beta = NULL",
        "UPDATE assumption_similarity SET status_floor = 'unbounded', beta_floor = NULL",
        "UPDATE assumption_similarity SET rho_0 = NULL, rho_0_sd = NULL",
    ],
    "sparsified_in_range": ["DELETE FROM sparsified_loss"],
    "weights_in_domain": [
        "UPDATE assumption_weights SET p_sink = NULL",
        *updates("assumption_weights", HEAD, "variant = 'untied', t_1 = 0, eta = -0.5, omega = 1"),
        *updates("assumption_weights", HEAD, "variant = 'tied', eta = 0.5, omega = 1, eta_growth = NULL, t_2 = query"),
    ],
}
"""Rare but possible: heads of zeros, nothing that contributes, data that leave parameters open, features not used."""


def find_wrongly_judged(
    connection: duckdb.DuckDBPyConnection, check: str, changes: Iterable[str], *, broken: bool
) -> list[str]:
    """The changes after which a check does not find what it should."""
    wrong = []
    for change in changes:
        connection.begin()
        try:
            connection.execute(change)
            if bool(violations(connection, check)) != broken:
                wrong.append(change)
        finally:
            connection.rollback()
    return wrong


def test_every_check_is_tested() -> None:
    assert set(BROKEN) == set(sql.list_names("checks")) >= set(HARMLESS)


@pytest.mark.parametrize("check", sql.list_names("checks"))
def test_what_is_broken_is_found(good: duckdb.DuckDBPyConnection, check: str) -> None:
    assert violations(good, check) == []
    assert find_wrongly_judged(good, check, BROKEN[check], broken=True) == []


@pytest.mark.parametrize("check", HARMLESS)
def test_what_is_rare_is_not_broken(good: duckdb.DuckDBPyConnection, check: str) -> None:
    assert find_wrongly_judged(good, check, HARMLESS[check], broken=False) == []


@pytest.mark.one_case(others="long")
@pytest.mark.parametrize("study", [SMALL, *DEGENERATE.values()], ids=lambda study: study.study)
def test_the_strangest_studies_break_no_check(study: MadeUp) -> None:
    with warehouse(study) as strange:
        found = {check: violations(strange, check, study.study) for check in sql.list_names("checks")}
    assert not any(found.values()), found


def test_another_study_is_none_of_a_checks_business(changed: duckdb.DuckDBPyConnection) -> None:
    """Every table holds another study twice, and nothing of it is as it should be."""
    for table in sql.list_names("schema"):
        columns = [column for column in sql.read_statement("schema", table).typed if column.type == "DOUBLE"]
        wrong = "".join(f", {column.name} + 7 AS {column.name}" for column in columns if column.name != "kappa")
        changed.execute(f"INSERT INTO {table} SELECT * REPLACE ('other' AS study{wrong}) FROM {table}")
        changed.execute(f"INSERT INTO {table} FROM {table} WHERE study = 'other'")
    for check in sql.list_names("checks"):
        assert violations(changed, check, STUDY.study) == [], check
