"""What the paper claims: each value is the one it says, and the verdict turns where the threshold lies."""

from collections.abc import Iterator
from statistics import mean

import duckdb
import pytest

import sql
from tests.reports.synthetic import Synthetic, warehouse

STUDY = Synthetic(kappas=(0.1, 2.0))

CHANGES: dict[str, list[tuple[str, float | None, bool | None]]] = {
    "norms_stable": [
        ("UPDATE assumption_norms SET cv_of_mean_norm = 0.05", 0.05, True),
        ("UPDATE assumption_norms SET cv_of_mean_norm = CASE WHEN layer = 0 THEN 9 ELSE 0.06 END", 0.06, False),
        ("UPDATE assumption_norms SET cv_of_mean_norm = NULL", None, None),
    ],
    "norms_stable_within_sequence": [
        ("UPDATE assumption_norms SET cv_within_sequence = 0.04", 0.04, True),
        ("UPDATE assumption_norms SET cv_within_sequence = CASE WHEN layer = 0 THEN 9 ELSE 0.3 END", 0.3, False),
        ("UPDATE assumption_norms SET cv_within_sequence = NULL", None, None),
    ],
    "sink_compressed": [
        ("UPDATE assumption_norms SET lambda_sink = 0.5", 0.5, True),
        ("UPDATE assumption_norms SET lambda_sink = CASE WHEN layer = 0 THEN 9 ELSE 0.6 END", 0.6, False),
    ],
    "similarity_decays_exponentially": [
        ("UPDATE assumption_similarity SET mae = 0.09", 0.09, True),
        ("UPDATE assumption_similarity SET mae = 0.1 * (1 + layer)", 0.2, False),
        ("DELETE FROM assumption_similarity", None, None),
    ],
    "exponential_preferred": [
        (
            "UPDATE assumption_similarity SET preferred = CASE kv_head WHEN 0 THEN 'exponential' ELSE 'floor' END",
            0.5,
            True,
        ),
        ("UPDATE assumption_similarity SET preferred = 'floor'", 0, False),
        ("UPDATE assumption_similarity SET preferred = NULL", None, None),
    ],
    "sink_dominates": [
        ("UPDATE assumption_weights_model SET p_sink = 0.25, p_base = 0.0025", 100, True),
        ("UPDATE assumption_weights_model SET p_sink = 0.25, p_base = 0.25", 1, False),
        ("UPDATE assumption_weights_model SET p_sink = NULL", None, None),
    ],
    "four_phases": [
        ("UPDATE assumption_weights_model SET variant = 'untied'", 1, True),
        ("UPDATE assumption_weights_model SET variant = 'growth'", 0, False),
        ("UPDATE assumption_weights_model SET variant = NULL", None, None),
    ],
    "phases_fit": [
        ("UPDATE assumption_weights_model SET r2_log = 0.9", 0.9, True),
        ("UPDATE assumption_weights_model SET r2_log = 0.89", 0.89, False),
    ],
    "premise_holds": [
        ("UPDATE bound_means SET premise_share = 0.5", 0.5, True),
        ("UPDATE bound_means SET premise_share = 0.4", 0.4, False),
    ],
    "precision_covered": [
        ("UPDATE bound_means SET precision_lower = 0, precision_upper = 1 WHERE precision_lower > 0", 1, True),
        ("UPDATE bound_means SET precision_lower = 2", 0, False),
        ("UPDATE bound_means SET precision_lower = 2 WHERE premise_share > 0.5", 0, False),
        ("UPDATE bound_means SET premise_share = 0.5", None, None),  # nothing that the theorems speak of
        ("DELETE FROM bound_means", None, None),
    ],
    "recall_covered": [
        ("UPDATE bound_means SET recall_lower = 0, recall_upper = 1 WHERE recall_lower >= 0", 1, True),
        ("UPDATE bound_means SET recall_lower = 2 WHERE kappa = 2", 1, True),  # then another κ serves better
        ("UPDATE bound_means SET recall_lower = 2", 0, False),
    ],
    "small_n_elbow": [
        ("UPDATE elbows_model SET elbow_n = 4", 4, True),
        ("UPDATE elbows_model SET elbow_n = 5", 5, False),
        ("UPDATE elbows_model SET status = 'no_decline', elbow_n = NULL, lowest_n = 2", None, None),
    ],
    "intermediate_weakest": [
        ("UPDATE elbows_model SET elbow_n = 2, lowest_n = 22", 1, True),
        ("UPDATE elbows_model SET elbow_n = 2, lowest_n = 23", 0, False),
        ("UPDATE elbows_model SET elbow_n = 5, lowest_n = 5", 0, False),
        ("UPDATE elbows_model SET status = 'no_decline', elbow_n = NULL, lowest_n = 2", 0, False),
        ("UPDATE elbows_model SET status = 'trivial', elbow_n = NULL, lowest_n = NULL", None, None),
        ("DELETE FROM selection_means_model WHERE n > 4", 0, False),
        ("DELETE FROM selection_means_model WHERE n > 3", None, None),
        ("DELETE FROM elbows_model", None, None),
    ],
    "sink_raises_recall": [
        ("UPDATE sink_effect SET correlation = CASE WHEN n <= 2 THEN -1 ELSE 0.5 END", 21 / 22, True),
        ("UPDATE sink_effect SET correlation = CASE WHEN n > 12 THEN 0.5 ELSE 0 END", 0.5, False),
        ("UPDATE sink_effect SET correlation = CASE WHEN n > 12 THEN 0.5 END", 1, True),
        ("UPDATE sink_effect SET correlation = NULL", None, None),
    ],
    "sink_effect_peaks_early": [
        (
            "UPDATE sink_effect SET correlation = CASE n WHEN 1 THEN 1 WHEN 8 THEN 0.7 WHEN 9 THEN 0.7 ELSE 0 END",
            8,
            True,
        ),
        ("UPDATE sink_effect SET correlation = CASE n WHEN 2 THEN NULL WHEN 9 THEN -0.7 ELSE -0.8 END", 9, False),
        ("UPDATE sink_effect SET correlation = NULL", None, None),
    ],
    "regimes_fit": [
        (
            "UPDATE head_taxonomy SET label = CASE WHEN layer > 0 OR head > 1 THEN 'Mixer' ELSE 'Other' END",
            10 / 12,
            True,
        ),
        ("UPDATE head_taxonomy SET label = CASE WHEN layer > 0 THEN 'Mixer' ELSE 'Other' END", 2 / 3, False),
        ("DELETE FROM head_taxonomy", None, None),
    ],
    "retrievers_first": [
        ("UPDATE head_taxonomy SET label = CASE layer WHEN 0 THEN 'Retriever' ELSE 'Mixer' END", -1.5, True),
        ("UPDATE head_taxonomy SET label = CASE layer WHEN 2 THEN 'Retriever' ELSE 'Reset' END", 1.5, False),
        ("UPDATE head_taxonomy SET label = 'Reset'", None, None),
        ("UPDATE head_taxonomy SET label = 'Retriever'", None, None),
    ],
    "resets_early": [
        ("UPDATE head_taxonomy SET label = CASE WHEN layer > 0 OR head > 1 THEN 'Mixer' ELSE 'Reset' END", 0.5, True),
        ("UPDATE head_taxonomy SET label = CASE WHEN layer > 0 THEN 'Reset' ELSE 'Mixer' END", 0, False),
        ("DELETE FROM head_taxonomy", None, None),
    ],
    "mixers_prevail_deep": [
        ("UPDATE head_taxonomy SET label = CASE WHEN layer < 2 OR head > 1 THEN 'Reset' ELSE 'Mixer' END", 0.5, True),
        ("UPDATE head_taxonomy SET label = CASE WHEN layer < 2 THEN 'Mixer' ELSE 'Reset' END", 0, False),
        ("DELETE FROM head_taxonomy", None, None),
    ],
}
"""For each claim, changes of a study, and the value and the verdict that follow."""


@pytest.fixture(scope="module")
def whole() -> Iterator[duckdb.DuckDBPyConnection]:
    with warehouse(STUDY, Synthetic("other", layers=1, seed=3)) as connection:
        connection.execute("UPDATE bound_means SET recall_lower = 0, recall_upper = 1 WHERE study = 'small'")
        yield connection


@pytest.fixture
def changed(whole: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """The same, and what a test changes there is forgotten."""
    whole.begin()
    yield whole
    whole.rollback()


def claims(connection: duckdb.DuckDBPyConnection, study: str) -> dict[str, tuple[float | None, bool | None]]:
    found = connection.execute("SELECT claim, value, supported FROM claims WHERE study = ?", [study]).fetchall()
    assert len(found) == len(CHANGES)
    return {claim: (value, supported) for claim, value, supported in found}


@pytest.mark.parametrize(
    ("claim", "change", "value", "supported"),
    [(claim, *change) for claim, changes in CHANGES.items() for change in changes],
)
def test_a_verdict_follows_from_its_value(
    changed: duckdb.DuckDBPyConnection, claim: str, change: str, value: float | None, supported: bool | None
) -> None:
    before = claims(changed, "other")
    where = "AND" if "WHERE" in change else "WHERE"
    changed.execute(f"{change} {where} study = 'small'")
    found, verdict = claims(changed, "small")[claim]
    assert found == (value if value is None else pytest.approx(value))
    assert verdict is supported
    assert claims(changed, "other") == before


def test_claims_are_about_the_last_query(changed: duckdb.DuckDBPyConnection) -> None:
    before = claims(changed, "small")
    earlier = {
        "assumption_weights_model": "variant = 'growth', p_base = 1, r2_log = 0",
        "elbows_model": "elbow_n = 9, lowest_n = 9",
        "bound_means": "precision_lower = 2, recall_lower = 2",
        "selection_means": "precision = 0.5",
        "selection_means_model": "precision = 0.5",
        "sink_effect": "correlation = -1",
        "head_taxonomy": "label = CASE layer WHEN 0 THEN 'Other' ELSE 'Retriever' END",
    }
    for table, changes in earlier.items():
        changed.execute(f"CREATE TEMP TABLE earlier AS SELECT * REPLACE (query - 5 AS query) FROM {table}")
        changed.execute(f"UPDATE earlier SET {changes}")
        changed.execute(f"INSERT INTO {table} FROM earlier")
        changed.execute("DROP TABLE earlier")
    assert claims(changed, "small") == before


def test_one_layer_says_nothing_of_depth() -> None:
    with warehouse(Synthetic("flat", layers=1)) as connection:
        found = claims(connection, "flat")
    assert {name for name, (value, _) in found.items() if value is None} >= {
        "retrievers_first",
        "resets_early",
        "mixers_prevail_deep",
    }
    assert found["regimes_fit"] != (None, None)


OF_KINDS = ("regimes_fit", "retrievers_first", "resets_early", "mixers_prevail_deep")
ALONE = 23
"""First key of a layer whose heads attend to one key."""


def judged_kinds(connection: duckdb.DuckDBPyConnection, layers: int) -> dict[str, float | None]:
    """The claims of kinds read plainly: over the heads whose row of attention has two keys or more."""
    rows = connection.sql("FROM head_taxonomy").to_arrow_table().to_pylist()
    keys = {
        (row["layer"], row["head"]): row["n_keys"]
        for row in connection.sql("FROM attention_rows").to_arrow_table().to_pylist()
    }
    heads = [row for row in rows if keys[row["layer"], row["head"]] > 1]

    def share(found: list[bool]) -> float | None:
        return mean(found) if found else None

    first, others = (
        [row["layer"] for row in heads if (row["label"] == "Retriever") == retriever] for retriever in (True, False)
    )
    comparable = first and others and len({row["layer"] for row in heads}) > 1
    values = (
        share([row["label"] != "Other" for row in heads]),
        mean(first) - mean(others) if comparable else None,
        share([row["label"] == "Reset" for row in heads if layers > 1 and row["layer"] < layers / 4]),
        share([row["label"] == "Mixer" for row in heads if layers > 1 and row["layer"] >= layers / 2]),
    )
    return dict(zip(OF_KINDS, values, strict=True))


@pytest.mark.parametrize(
    "first_keys",
    [
        (0, 0, 0, 0),
        (0, ALONE, 0, ALONE),
        (ALONE, 0, 0, 0),
        (0, 0, ALONE, ALONE),
        (ALONE, 0, ALONE, ALONE),
        (ALONE,) * 4,
    ],
)
def test_heads_of_one_key_are_of_no_kind(first_keys: tuple[int, ...]) -> None:
    with warehouse(Synthetic("windows", layers=4, first_keys=first_keys)) as connection:
        connection.execute(
            "UPDATE head_taxonomy SET label = ['Retriever', 'Mixer', 'Reset', 'Other'][1 + (layer + head) % 4]"
        )
        found = {name: value for name, (value, _) in claims(connection, "windows").items() if name in OF_KINDS}
        assert found == pytest.approx(judged_kinds(connection, 4))


def test_a_study_without_any_results_supports_nothing() -> None:
    empty = Synthetic("empty", without=sorted(set(sql.names("schema")) - {"studies"}))
    with warehouse(empty) as connection:
        assert set(claims(connection, "empty").values()) == {(None, None)}
