"""The checks of measures beside nulls, curves and plain arithmetic: nothing in a possible study, each way of breaking
it found.
"""

import duckdb
import pytest

import sql
from tests.made_up import MadeUp, warehouse
from tests.sql.checking import violations

"""Three queries, of which the last one sees fewer keys in layer 2."""
HEAD = "query = 11 AND layer = 1 AND head = 2"
ONE = f"{HEAD} AND n = 4 AND measure = 'recall' AND null_model = 'random_selection'"
MODEL = "query = 11 AND n = 4 AND measure = 'recall' AND null_model = 'random_selection'"
AUC = "query = 11 AND n = 4 AND measure = 'auc' AND null_model = 'shuffled_values'"
CURVE = "auc_rank = 'median' AND n = 4"
POINT = f"{CURVE} AND point = 7"
AT_4 = [f"{metric}{part}_at_4" for metric in ("recall", "precision") for part in ("", "_difference")]
LAST = "query = 23 AND layer = 1 AND head = 2 AND arithmetic = 'float32_cdist'"
FOUR = f"{HEAD} AND n = 4 AND sequence = 1"

RANGES = [
    "value = 1.001",
    "value = -0.001",
    "value = 'nan'",
    "null_value = 1.001",
    "null_value = -0.001",
    "difference = difference + 1e-6",
    "low = difference + 1e-6",
    "high = difference - 1e-6",
    "low = -1.001",
    "high = 1.001",
    "se = -0.1",
    "se = 'inf'",
    "se = NULL",
    "low = NULL",
    "high = NULL",
    "draws = 0",
    "sequences = 1",
]

BROKEN = {
    "separability_in_range": [
        f"UPDATE {table} SET {change} WHERE {place}"
        for table, place in (("separability", ONE), ("separability_model", MODEL))
        for change in RANGES
    ]
    + [f"UPDATE separability SET se = NULL, low = NULL, high = NULL WHERE {ONE}"],
    "every_measure_once": [
        *(
            statement
            for table, place in (("separability", ONE), ("separability_model", MODEL))
            for statement in (
                f"DELETE FROM {table} WHERE {place}",
                f"DELETE FROM {table} WHERE query = 11",
                f"DELETE FROM {table}",
                f"INSERT INTO {table} FROM {table} WHERE {place}",
                f"UPDATE {table} SET measure = 'f' WHERE {place}",
                f"UPDATE {table} SET measure = 'precision' WHERE {place}",
                f"UPDATE {table} SET null_model = 'shuffled_values' WHERE {place}",
                f"UPDATE {table} SET n = 99 WHERE {place}",
                f"UPDATE {table} SET query = 9 WHERE {place}",
            )
        ),
        f"UPDATE separability SET head = 9 WHERE {HEAD}",
        f"DELETE FROM attention_rows WHERE {HEAD}",
        "UPDATE separability SET n = 11 WHERE n = 10 AND query = 23",
    ],
    "measures_of_selections": [
        f"UPDATE separability SET value = value + 1e-3 WHERE {ONE}",
        f"UPDATE separability SET sequences = 2 WHERE {ONE}",
        f"UPDATE separability SET null_value = null_value + 1e-3 WHERE {ONE}",
        f"UPDATE separability SET value = value + 1e-3 WHERE layer = 1 AND head = 2 AND {AUC}",
        *(
            f"UPDATE separability_model SET {change} WHERE {place}"
            for place in (MODEL, AUC)
            for change in ("value = value + 1e-3", "null_value = null_value + 1e-3", "heads = 11", "sequences = 2")
        ),
        f"UPDATE selection_counts SET k_in = k_in - 1 WHERE {FOUR}",
        f"UPDATE selection_counts SET k_out = k_out + 1 WHERE {FOUR}",
        f"DELETE FROM selection_counts WHERE {FOUR}",
        f"DELETE FROM separability WHERE {ONE}",
    ],
    "curves_in_order": [
        f"DELETE FROM separation_curves WHERE {CURVE} AND point = 0",
        f"DELETE FROM separation_curves WHERE {CURVE} AND point > 20",
        f"INSERT INTO separation_curves FROM separation_curves WHERE {POINT}",
        *(
            f"UPDATE separation_curves SET {change} WHERE {POINT}"
            for change in (
                "point = 0",
                "point = 9",
                "radius = radius - 1.5",
                "radius = radius + 1.5",
                "radius = -1",
                "radius = 'inf'",
                "recall = recall - 0.25",
                "false_positive_share = false_positive_share + 0.2",
                "precision = precision + 0.01",
                "auc = auc + 0.01",
                "head = head + 1",
                "n = 5",
                "n_keys = n_keys + 1",
            )
        ),
        *(
            f"UPDATE separation_curves SET {change} WHERE {CURVE}"
            for change in (
                "auc = 1.1",
                "auc = 'nan'",
                "head = 9",
                "auc_rank = 'best'",
                "n_keys = query + 2",
                "n = n_keys",
            )
        ),
    ],
    "arithmetic_in_range": [
        f"DELETE FROM arithmetic WHERE {LAST}",
        f"INSERT INTO arithmetic FROM arithmetic WHERE {LAST}",
        *(
            f"UPDATE arithmetic SET {change} WHERE {LAST}"
            for change in (
                "arithmetic = 'float64_literal'",
                "arithmetic = 'float16'",
                "head = 9",
                "query = 5",
                "n_values = 0",
                "n_values = 24",
                "sequences = 3",
                "recall_differs = 1.01",
                "recall_differs = -0.01",
                "precision_differs = 'nan'",
                "recall_difference = 1.1",
                "precision_difference = -1.1",
                "recall_differs = 0",
                "recall_difference_at_4 = 1.1",
                "recall_at_4 = recall_at_4 + 1e-3",
                "precision_at_4 = precision_at_4 - 1e-3",
                "precision_at_4 = NULL",
                "recall_at_4 = NULL",
                "precision_difference_at_4 = NULL",
                ", ".join(f"{column} = NULL" for column in AT_4),
            )
        ),
        "UPDATE selection_counts SET k_out = k_out + 1 WHERE query = 23 AND layer = 1 AND head = 2 AND n = 4",
    ],
}
"""For each check, statements that break what it looks at."""

HARMLESS = {
    "separability_in_range": [
        "UPDATE separability SET sequences = 1, se = NULL, low = NULL, high = NULL",
        "UPDATE separability_model SET se = NULL, low = NULL, high = NULL",
        f"UPDATE separability SET difference = difference + 1e-10 WHERE {ONE}",
    ],
    "every_measure_once": ["DELETE FROM separability; DELETE FROM separability_model"],
    "measures_of_selections": [
        "DELETE FROM separability; DELETE FROM separability_model",
        f"UPDATE separability SET value = value + 1e-8 WHERE {ONE}",
    ],
    "curves_in_order": ["DELETE FROM separation_curves", f"DELETE FROM separation_curves WHERE {POINT}"],
    "arithmetic_in_range": ["DELETE FROM arithmetic", "DELETE FROM arithmetic WHERE layer = 1 AND head = 2"],
}
"""Rare but possible studies."""


@pytest.mark.parametrize("check", BROKEN)
def test_a_possible_study_breaks_no_check(good: duckdb.DuckDBPyConnection, check: str) -> None:
    assert violations(good, check) == []


@pytest.mark.parametrize("table", ["separability", "separability_model", "separation_curves", "arithmetic"])
def test_the_possible_study_has_rows(good: duckdb.DuckDBPyConnection, table: str) -> None:
    assert good.table(table).count("*").fetchall()[0][0] > 0


@pytest.mark.parametrize(("check", "change"), [(check, change) for check in BROKEN for change in BROKEN[check]])
def test_what_is_broken_is_found(changed: duckdb.DuckDBPyConnection, check: str, change: str) -> None:
    changed.execute(change)
    assert violations(changed, check)


@pytest.mark.parametrize(("check", "change"), [(check, change) for check in HARMLESS for change in HARMLESS[check]])
def test_what_is_rare_is_not_broken(changed: duckdb.DuckDBPyConnection, check: str, change: str) -> None:
    changed.execute(change)
    assert violations(changed, check) == []


@pytest.mark.one_case
@pytest.mark.parametrize("study", [MadeUp(sequences=1), MadeUp(context=4), MadeUp(context=2, layers=1)])
def test_small_studies_break_no_check(study: MadeUp) -> None:
    """One sequence, no N of 4, a single N."""
    with warehouse(study) as connection:
        for check in BROKEN:
            assert violations(connection, check) == [], check


def test_another_study_is_none_of_a_checks_business(changed: duckdb.DuckDBPyConnection) -> None:
    with warehouse(MadeUp("other", seed=1, layers=5)) as other:
        for table in sql.list_names("schema"):
            rows = other.table(table).to_arrow_table()
            changed.register("incoming", rows)
            changed.execute(f"INSERT INTO {table} BY NAME FROM incoming")
            changed.unregister("incoming")
    broken = {
        "separability": "value = 2, measure = 'none'",
        "separability_model": "value = 2",
        "separation_curves": "recall = 2",
        "arithmetic": "recall_differs = 2",
    }
    for table, change in broken.items():
        changed.execute(f"UPDATE {table} SET {change} WHERE study = 'other'")
    for check in BROKEN:
        assert violations(changed, check) == [], check
        assert changed.execute(sql.read_statement("checks", check).text, {"study": "other"}).fetchall(), check
