"""The checks of what is told of heads: they find nothing in a possible study, something in each way of breaking it.

What does not belong here: checks of metrics and fits (``tests.storage.test_checks``).
"""

import duckdb
import pytest

import sql
from tests.made_up import MadeUp, warehouse
from tests.sql.checking import violations

"""Three queries, of which the last one does not see the sink in layer 2."""
HEAD = "query = 11 AND layer = 1 AND head = 2"
HIDDEN = "query = 23 AND layer = 2 AND head = 0"
ONE = f"sequence = 1 AND {HEAD}"
NEAR = "n = 5 AND query = 23"
PAIR = "layer = 1 AND kv_head = 1"
OTHER = "query = 23 AND label = 'Other'"
OF_OTHERS = f"(query, layer, head) IN (SELECT (query, layer, head) FROM head_taxonomy WHERE {OTHER})"
LARGEST = f"SELECT max(cos_last) FROM selection_counts WHERE {ONE}"
NO_SCORES = "retriever_score = NULL, mixer_score = NULL, reset_score = NULL"
NO_QUANTILE = f"UPDATE attention_rows SET cos_last_p05 = NULL WHERE {ONE}"
CONTRIBUTORS = (
    *("entropy_contributors", "effective_contributors", "top_contribution"),
    *("contributors_50", "contributors_90", "contributors_99"),
    *("top_contributor_position", "top_contributor_role"),
)
"""What is missing together where nothing contributes."""
NO_CONTRIBUTORS = f"UPDATE concentration SET {', '.join(f'{name} = NULL' for name in CONTRIBUTORS)} WHERE {ONE}"
SHARES = "(share_1, share_2, share_3, effective_dimension)"

BROKEN = {
    "every_head_labelled_once": [
        f"DELETE FROM head_taxonomy WHERE {HEAD}",
        "DELETE FROM head_taxonomy WHERE query = 5",
        f"INSERT INTO head_taxonomy FROM head_taxonomy WHERE {HEAD}",
        *(
            f"UPDATE head_taxonomy SET {change} WHERE {HEAD}"
            for change in (
                "head = 9",
                "label = CASE label WHEN 'Mixer' THEN 'Reset' ELSE 'Mixer' END",
                "label = 'Other'",
                "label = 'Other', nearest = NULL, margin = NULL",
                "nearest = CASE nearest WHEN 'Mixer' THEN 'Reset' ELSE 'Mixer' END",
                "nearest = NULL",
                "single_key = true",
                "retriever_score = mixer_score, reset_score = mixer_score, margin = 0",
                "margin = NULL",
                "margin = margin + 1e-9",
                "margin = -1e-9",
                "agreement = 1.1",
                "agreement = -0.1",
                "sequences = 0",
                "retriever_score = 'nan'",
                "sink_share = -1e-9",
                "last_share = last_share + 0.001",
            )
        ),
        f"UPDATE head_taxonomy SET margin = margin + 1e-9 WHERE {OTHER}",
        f"UPDATE head_taxonomy SET label = nearest WHERE {OTHER}",
        f"UPDATE head_taxonomy SET single_key = true WHERE {OTHER}",
    ],
    "conditions_decide_labels": [
        f"DELETE FROM head_conditions WHERE {HEAD}",
        f"DELETE FROM head_conditions WHERE {HEAD} AND condition = 'last_weak'",
        f"DELETE FROM head_taxonomy WHERE {HEAD}",
        f"INSERT INTO head_conditions FROM head_conditions WHERE {HEAD} AND condition = 'last_weak'",
        f"UPDATE head_conditions SET condition = 'last_high' WHERE {HEAD} AND kind = 'Retriever'",
        f"UPDATE head_conditions SET met = NOT met WHERE {HEAD} AND condition = 'sink_seen'",
        f"UPDATE head_conditions SET value = NULL WHERE {HEAD} AND met",
        f"UPDATE head_conditions SET value = -9, met = false WHERE {HEAD} AND condition = 'last_rises'",
        f"UPDATE head_conditions SET value = threshold, met = true WHERE direction <> '>' AND {OF_OTHERS}",
        f"UPDATE head_taxonomy SET label = 'Reset' WHERE {HEAD}",
        f"UPDATE head_taxonomy SET label = 'Other' WHERE {HEAD}",
    ],
    "every_concentration_once": [
        f"DELETE FROM concentration WHERE {ONE}",
        f"DELETE FROM attention_rows WHERE {ONE}",
        f"INSERT INTO concentration FROM concentration WHERE {ONE}",
        *(
            f"UPDATE concentration SET {change} WHERE {ONE}"
            for change in (
                "sequence = 9",
                "n_keys = n_keys - 1",
                "entropy_keys = entropy_keys * 1.001",
                "effective_keys = 0.9, entropy_keys = ln(0.9)",
                "effective_keys = 12.1, entropy_keys = ln(12.1)",
                "entropy_contributors = 'inf'",
                "effective_contributors = NULL",
                "top_contribution = NULL",
                "top_contributor_role = NULL",
                "effective_contributors = effective_contributors * 1.001",
                "top_weight = 1.1",
                "top_weight = 0.01",
                "top_weight = 0.6, n_50 = 2",
                "n_50 = n_90 + 1",
                "n_90 = n_99 + 1",
                "n_99 = n_keys + 1",
                "contributors_50 = 0",
                "largest_deviation = -0.1",
                "largest_deviation = 1",
                "top_position = 12",
                "top_position = -1",
                "top_position = 3",
                "top_role = CASE top_role WHEN 'sink' THEN 'last' ELSE 'sink' END",
                "top_contributor_position = 12",
                "top_contributor_role = CASE top_contributor_role WHEN 'sink' THEN 'last' ELSE 'sink' END",
            )
        ),
        NO_CONTRIBUTORS,
    ],
    "every_concentration_mean_once": [
        f"DELETE FROM concentration_means WHERE {HEAD}",
        f"DELETE FROM attention_rows WHERE {HEAD}",
        f"INSERT INTO concentration_means FROM concentration_means WHERE {HEAD}",
        *(
            f"UPDATE concentration_means SET {change} WHERE {HEAD}"
            for change in (
                "head = 9",
                "sequences = 2",
                "top_sink_share = top_sink_share + 0.01",
                "top_sink_share = -0.5, top_last_share = 1.5 - top_other_share",
                "effective_keys = 0.99",
                "effective_keys = n_keys + 0.01",
                "effective_contributors = n_keys + 0.01",
                "top_contributor_last_share = 2",
            )
        ),
    ],
    "low_quantiles_held": [
        f"UPDATE attention_rows SET cos_last_p05 = {value} WHERE {ONE}"
        for value in ("NULL", "-1", "1", "cos_last_p05 - 1e-6", f"({LARGEST})")
    ]
    + [f"UPDATE selection_counts SET cos_last = cos_last + 0.001 WHERE {ONE}"],
    "every_signature_once": [
        f"DELETE FROM head_signatures WHERE {ONE}",
        f"DELETE FROM attention_rows WHERE {ONE}",
        f"INSERT INTO head_signatures FROM head_signatures WHERE {ONE}",
        *(
            f"UPDATE head_signatures SET {change} WHERE {ONE}"
            for change in (
                "sequence = 9",
                "n_keys = n_keys - 1",
                "norm_y_0 = NULL",
                "norm_y_0 = norm_y_0 * 1.001",
                "norm_y_last = norm_y_last * 1.001",
                "norm_rest = norm_rest * 1.001",
                "change_without_sink = NULL",
                "change_without_sink = norm_y_0 * 1.001",
                "change_without_last = norm_y_last * 1.001",
                "cos_last_p05 = NULL",
                "cos_last_p05 = cos_last_p05 + 0.001",
                "effective_contributors = effective_contributors + 0.001",
                "top_is_other = 1 - top_is_other",
                "top_is_other = NULL",
                "cos_sink_max = 1.0001",
                "cos_sink_level = 1.0001",
                "cos_last_level = -1.0001",
                "cos_sink_change = 'inf'",
                "cos_last_change = 'nan'",
                "cos_sink_change = NULL",
                "cos_last_level = NULL",
            )
        ),
        f"UPDATE head_signatures SET cos_sink_level = 0, cos_sink_change = 0 WHERE {HIDDEN}",
        f"UPDATE head_signatures SET cos_sink_max = 0 WHERE {HIDDEN}",
        f"UPDATE head_signatures SET change_without_sink = 0 WHERE {HIDDEN}",
        f"DELETE FROM concentration WHERE {ONE}",
        f"UPDATE attention_rows SET n_keys = 1 WHERE {ONE}; UPDATE head_signatures SET n_keys = 1 WHERE {ONE}",
    ],
    "every_diagnostic_once": [
        f"DELETE FROM diagnostics WHERE {HEAD}",
        f"DELETE FROM diagnostics WHERE {HEAD} AND n = 3",
        f"DELETE FROM attention_rows WHERE {HEAD}",
        f"INSERT INTO diagnostics FROM diagnostics WHERE {HEAD} AND n = 3",
        *(
            f"UPDATE diagnostics SET {change} WHERE {HEAD} AND n = 3"
            for change in (
                "n = 4",
                "n = 99",
                "head = 9",
                "cos_sink = 1.0001",
                "cos_last = -1.0001",
                "norm_s = -1e-9",
                "norm_s = 'inf'",
                "norm_s_without_last = -1e-9",
                "norm_s_without_sink = NULL",
                "norm_s_without_sink = norm_s + 9",
                "norm_s_without_last = norm_s + 9",
            )
        ),
        f"UPDATE diagnostics SET norm_s_without_sink = norm_s WHERE {HIDDEN}",
        f"UPDATE diagnostics SET cos_sink = 0 WHERE {HIDDEN} AND n = 2",
    ],
    "parts_consistent": [
        *(
            f"UPDATE attention_rows SET {change} WHERE {ONE}"
            for change in (
                "norm_y_0 = NULL",
                "norm_y_0 = -1e-9",
                "norm_y_last = -1e-9",
                "norm_rest = -1e-9",
                "total_rest = norm_rest * 0.999",
                "norm_y_last = 'inf'",
                "total_rest = 'nan'",
                "norm_output = -1e-9",
                "norm_output_without_last = 'inf'",
                "cos_last_p05 = 1.0001",
                "n_keys = 2",
            )
        ),
        f"UPDATE attention_rows SET norm_y_0 = 0 WHERE {HIDDEN}",
    ],
    "ablation_of_every_head": [
        "DELETE FROM head_ablation WHERE layer = 1 AND head = 0 AND kind = 'zero'",
        "INSERT INTO head_ablation FROM head_ablation WHERE layer = 1 AND head = 0 AND kind = 'zero'",
        *(
            f"UPDATE head_ablation SET {change} WHERE layer = 1 AND head = 0 AND kind = 'zero'"
            for change in (
                "head = 99",
                "kl = -0.001",
                "kl = NULL",
                "delta_loss = NULL, kl = NULL, delta_loss_ci_low = NULL, kl_ci_low = NULL",
                "delta_loss = 'nan'",
                "delta_loss_ci_low = NULL",
                "delta_loss_ci_low = delta_loss_ci_high + 1e-9",
                "kl_ci_high = kl_ci_low - 1e-9",
                "sequences = 1",
                "plain_loss = 'inf'",
            )
        ),
    ],
    "scores_of_known_heads": [
        "INSERT INTO external_scores FROM external_scores WHERE source = 'one'",
        *(
            f"UPDATE external_scores SET {change} WHERE layer = 1 AND head = 0 AND source = 'one'"
            for change in ("head = 99", "layer = 99", "score = 'nan'", "score = 'inf'")
        ),
    ],
    "sparsified_in_range": [
        "DELETE FROM sparsified_loss WHERE policy = 'same_n' AND budget = 0.5",
        *(
            f"{change} WHERE policy = 'elbow' AND budget = 0.5"
            for change in (
                "INSERT INTO sparsified_loss FROM sparsified_loss",
                "UPDATE sparsified_loss SET keys_kept = 0.5",
                "UPDATE sparsified_loss SET needs = 'nothing'",
                "UPDATE sparsified_loss SET kl = -0.001",
                "UPDATE sparsified_loss SET delta_loss = 'nan'",
                "UPDATE sparsified_loss SET budget = 1.5",
                "UPDATE sparsified_loss SET delta_loss_ci_low = NULL",
                "UPDATE sparsified_loss SET excess_loss_ci_low = excess_loss_ci_high + 1e-9",
            )
        ),
        "UPDATE sparsified_loss SET excess_loss = 1e-6 WHERE policy = 'same_n'",
    ],
    "sink_effect_in_range": [
        f"DELETE FROM sink_effect WHERE {NEAR}",
        "DELETE FROM sink_effect",
        f"DELETE FROM selection_means_model WHERE {NEAR}",
        f"INSERT INTO sink_effect FROM sink_effect WHERE {NEAR}",
        *(
            f"UPDATE sink_effect SET {change} WHERE {NEAR}"
            for change in (
                "n = 99",
                "correlation = 1.0001",
                "correlation = -1.0001",
                "correlation_ci_low = -1.0001",
                "correlation_ci_high = 1.0001",
                "correlation_ci_low = correlation_ci_high + 1e-9",
                "correlation_ci_low = NULL",
                "correlation = NULL",
                "sequences = 1",
                "heads = 2",
                "heads = -1",
                "heads = 99",
            )
        ),
    ],
    "every_contribution_once": [
        f"DELETE FROM contributions WHERE {HEAD}",
        f"DELETE FROM contributions WHERE {HEAD} AND position = 3",
        f"DELETE FROM attention_rows WHERE {HEAD}",
        f"INSERT INTO contributions FROM contributions WHERE {HEAD} AND position = 3",
        *(
            f"UPDATE contributions SET {change} WHERE {HEAD} AND position = 3"
            for change in (
                "position = 4",
                "head = 9",
                "mean_norm_y = -1e-9",
                "sd_norm_y = -1e-9",
                "mean_norm_y = 'inf'",
                "mean_cos_last = 1.0001",
                "mean_cos_sink = -1.0001",
            )
        ),
        f"UPDATE contributions SET position = position + 1 WHERE {HEAD}",
        f"UPDATE contributions SET mean_cos_last = 0.999 WHERE {HEAD} AND position = query",
        f"UPDATE contributions SET mean_cos_sink = 0.999 WHERE {HEAD} AND position = 0",
        f"UPDATE contributions SET mean_cos_sink = 0 WHERE {HIDDEN} AND position = 20",
    ],
    "every_direction_once": [
        f"DELETE FROM principal_directions WHERE {PAIR}",
        f"INSERT INTO principal_directions FROM principal_directions WHERE {PAIR}",
        *(
            f"UPDATE principal_directions SET {change} WHERE {PAIR}"
            for change in (
                "kv_head = 9",
                "share_1 = share_2 - 1e-9",
                "share_2 = share_3 - 1e-9",
                "share_3 = -1e-9",
                "share_1 = 1",
                "share_2 = NULL",
                "effective_dimension = 0.999",
                "effective_dimension = 16.001",
                "status = 'zero'",
                "status = 'other'",
            )
        ),
        "UPDATE heads SET head_dim = 1",
        "UPDATE heads SET head_dim = 2",
    ],
    "directions_in_ball": [
        f"INSERT INTO value_directions FROM value_directions WHERE {PAIR} AND position = 3",
        *(
            f"UPDATE value_directions SET {change} WHERE {PAIR} AND position = 3"
            for change in (
                "position = 4",
                "position = -1",
                "position = 24",
                "kv_head = 9",
                "x = 'nan'",
                "x = 0, y = 0, z = 1.01",
            )
        ),
        f"UPDATE principal_directions SET status = 'zero' WHERE {PAIR}",
        f"DELETE FROM principal_directions WHERE {PAIR}",
    ],
    "cosines_in_range": [
        f"UPDATE value_scales SET rho_0 = {value} WHERE sequence = 1 AND query = 11 AND {PAIR}"
        for value in (1.0001, -1.0001)
    ],
    "value_scales_once": [
        "UPDATE value_scales SET rho_0 = 0 WHERE sequence = 1 AND query = 23 AND layer = 2 AND kv_head = 0",
        f"DELETE FROM value_scales WHERE query = 11 AND {PAIR}",
    ],
}
"""For each check, statements that break what it looks at."""

HARMLESS = {
    "every_concentration_once": [
        f"UPDATE attention_rows SET norm_contributions = 0 WHERE {ONE}; {NO_CONTRIBUTORS}",
        f"UPDATE concentration SET effective_keys = effective_keys * (1 + 1e-6) WHERE {ONE}",
    ],
    "every_head_labelled_once": [
        f"UPDATE head_taxonomy SET {NO_SCORES}, label = 'Other', nearest = NULL, margin = NULL WHERE {HEAD}",
    ],
    "low_quantiles_held": [
        f"UPDATE selection_counts SET cos_last = NULL WHERE {ONE}; {NO_QUANTILE}",
    ],
    "every_signature_once": [
        f"UPDATE head_signatures SET {cosine}_level = NULL, {cosine}_change = NULL WHERE {ONE}"
        for cosine in ("cos_sink", "cos_last")
    ],
    "every_diagnostic_once": [
        f"UPDATE diagnostics SET cos_sink = NULL, cos_last = NULL WHERE {HEAD}",
        "UPDATE diagnostics SET norm_s = norm_s * (1 + 1e-6)",
    ],
    "parts_consistent": [
        f"UPDATE attention_rows SET norm_y_0 = 0, norm_y_last = 0, norm_rest = 0, total_rest = 0 WHERE {ONE}",
        f"UPDATE attention_rows SET norm_rest = total_rest * (1 + 5e-6) WHERE {ONE}",
    ],
    "sink_effect_in_range": [
        f"UPDATE sink_effect SET correlation_ci_low = 0.9, correlation_ci_high = 0.95, correlation = 0.8 WHERE {NEAR}",
        "UPDATE sink_effect SET correlation_ci_low = NULL, correlation_ci_high = NULL",
        "UPDATE sink_effect SET heads = 0, correlation = NULL, correlation_ci_low = NULL, correlation_ci_high = NULL",
    ],
    "every_contribution_once": [f"UPDATE contributions SET mean_cos_last = NULL, mean_cos_sink = NULL WHERE {HEAD}"],
    "every_direction_once": [
        f"UPDATE principal_directions SET status = 'zero', {SHARES} = (NULL, NULL, NULL, NULL)",
        f"UPDATE heads SET head_dim = 1; UPDATE principal_directions SET {SHARES} = (1, 0, 0, 1)",
    ],
    "directions_in_ball": [f"DELETE FROM value_directions WHERE {PAIR}"],
    "ablation_of_every_head": [
        "DELETE FROM head_ablation",
        "DELETE FROM head_ablation WHERE kind = 'sink'",
        "UPDATE head_ablation SET delta_loss = -1, delta_loss_ci_low = -2, delta_loss_ci_high = -0.5 WHERE kl > 0",
    ],
    "scores_of_known_heads": ["DELETE FROM external_scores", "DELETE FROM external_scores WHERE head = 0"],
    "sparsified_in_range": ["DELETE FROM sparsified_loss", "DELETE FROM sparsified_loss WHERE policy <> 'same_n'"],
}
"""Rare but possible studies."""


@pytest.mark.parametrize("check", BROKEN)
def test_a_possible_study_breaks_no_check(good: duckdb.DuckDBPyConnection, check: str) -> None:
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
    with warehouse(MadeUp("other", seed=1, layers=5)) as other:
        for table in sql.list_names("schema"):
            rows = other.table(table).to_arrow_table()
            changed.register("incoming", rows)
            changed.execute(f"INSERT INTO {table} BY NAME FROM incoming")
            changed.unregister("incoming")
    broken = {
        "head_taxonomy": "label = 'none', agreement = 2",
        "head_conditions": "met = NOT met",
        "head_signatures": "cos_last_level = 2",
        "concentration": "effective_keys = 0",
        "concentration_means": "effective_keys = 0",
        "diagnostics": "cos_last = 2",
        "attention_rows": "norm_rest = -1, cos_last_p05 = 2",
        "sink_effect": "correlation = 2",
        "head_ablation": "kl = -1",
        "sparsified_loss": "keys_kept = 0",
        "external_scores": "score = 'nan'",
        "contributions": "mean_cos_last = 2",
        "principal_directions": "share_1 = 2",
        "value_directions": "x = 2",
        "value_scales": "value_scale = -1, rho_0 = 2",
    }
    for table, change in broken.items():
        changed.execute(f"UPDATE {table} SET {change} WHERE study = 'other'")
    for check in BROKEN:
        assert violations(changed, check) == [], check
        assert changed.execute(sql.read_statement("checks", check).text, {"study": "other"}).fetchall(), check
