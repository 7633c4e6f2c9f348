"""Made-up rows of the tables that summarise a study: possible ones, which no model and no fit has seen.

Holds ``summaries``, which tests of storage and of reports share. What does not belong here: rows of a single sequence
(``tests.storage.studies``, ``tests.reports.synthetic``).
"""

from collections.abc import Mapping

import duckdb
import pyarrow as pa

from storage.warehouse.relations import read_paper_claims
from tests.sql.made_up_limits import LIMITS

METRICS = ("precision", "recall", "f_r_max", "f_r_min", "specificity", "precision_excess")

_NORMS = """
SELECT
    study, layer, kv_head, any_value(sequences) AS sequences,
    CASE WHEN max(position) = 0 THEN 'too_short' WHEN median(mean_norm) = 0 THEN 'zero' ELSE 'ok' END AS status,
    median(mean_norm) FILTER (WHERE position > 0) AS c,
    CASE WHEN any_value(sequences) > 1 THEN c / 100 END AS c_se,
    any_value(mean_norm) FILTER (WHERE position = 0) / c AS lambda_sink,
    0.02 + 0.01 * layer AS cv_of_mean_norm,
    0.2 + 0.03 * kv_head AS cv_within_sequence,
    0.01 AS cv_within_sequence_sd,
    0.7 * c AS norm_p05, 0.9 * c AS norm_p25, 1.1 * c AS norm_p75, 1.3 * c AS norm_p95
FROM value_norm_by_position
GROUP BY study, layer, kv_head
"""

_SINK_SIMILARITY = """
SELECT DISTINCT study, sequence, layer, kv_head, 0.05 + 0.02 * layer + 0.01 * sequence AS rho_0, 0.1 AS rho_0_sd
FROM value_scales
"""

_COSINES = """
SELECT
    study, layer, kv_head, distance, sequences,
    0.05 * kv_head + (1 - 0.05 * kv_head) * exp(-(0.3 + 0.2 * layer) * distance) AS mean_cosine,
    0.01 AS sd_cosine
FROM
    (SELECT DISTINCT study, layer, kv_head, sequences FROM value_norm_by_position),
    range(1, (SELECT max(position) FROM value_norm_by_position)) AS distances (distance)
"""

_FIT_OF_COSINES = """
any_value(sequences) AS sequences,
CASE WHEN count(distance) < 3 THEN 'too_short' ELSE 'ok' END AS status,
status AS status_floor,
count(distance) AS distances,
CASE WHEN status = 'ok' THEN 1 END AS ok,
CASE WHEN any_value(sequences) > 1 THEN ok END AS several,
ok * (0.3 + 0.2 * avg(layer)) AS beta, several * 0.01 AS beta_se, ok * (0.04 + 0.02 * avg(kv_head)) AS mae,
ok * greatest(1, count(distance) / 8) AS effective_points,
ok * -10 AS bic,
ok * (0.35 + 0.2 * avg(layer)) AS beta_floor, several * 0.01 AS beta_floor_se,
ok * 0.05 * avg(kv_head) AS floor, several * 0.01 AS floor_se, ok * 0.02 AS mae_floor,
ok * (-8 - 3 * avg(kv_head)) AS bic_floor,
CASE WHEN bic <= bic_floor THEN 'exponential' WHEN status = 'ok' THEN 'floor' END AS preferred,
0.05 + 0.02 * avg(layer) AS rho_0, 0.1 AS rho_0_sd, several * 0.01 AS rho_0_se
"""

_SIMILARITY = f"""
SELECT study, layer, kv_head, {_FIT_OF_COSINES}
FROM (SELECT DISTINCT study, layer, kv_head, sequences FROM value_norm_by_position)
LEFT JOIN (SELECT study, layer, kv_head, distance FROM cosine_by_distance) USING (study, layer, kv_head)
GROUP BY study, layer, kv_head
"""

_SIMILARITY_MODEL = f"""
SELECT study, (SELECT count(*) FROM (SELECT DISTINCT layer, kv_head FROM value_norm_by_position)) AS kv_heads,
    {_FIT_OF_COSINES}
FROM (SELECT DISTINCT study, 0 AS layer, 0 AS kv_head, sequences FROM value_norm_by_position)
LEFT JOIN (SELECT DISTINCT study, distance FROM cosine_by_distance) USING (study)
GROUP BY study
"""

_VARIANTS = "['tied', 'untied', 'growth', 'plateau']"

_FIT_OF_WEIGHTS = f"""
any_value(sequences) AS sequences,
count(*) FILTER (WHERE position > 0) AS positions,
CASE WHEN positions < 8 THEN 'too_short' ELSE 'ok' END AS status,
0 AS zero_positions,
CASE WHEN status = 'ok' THEN greatest(1, positions / 8) END AS effective_points,
CASE WHEN status = 'ok' THEN {_VARIANTS}[1 + (layer + head) % 4] END AS variant,
any_value(weight) FILTER (WHERE position = 0) AS p_sink,
CASE WHEN any_value(sequences) > 1 THEN p_sink / 20 END AS p_sink_se,
CASE WHEN status = 'ok' THEN median(weight) FILTER (WHERE position > 0) END AS p_base,
CASE WHEN any_value(sequences) > 1 THEN p_base / 20 END AS p_base_se,
CASE WHEN variant IN ('tied', 'untied') THEN 0.3 END AS eta,
CASE WHEN any_value(sequences) > 1 THEN eta / 10 END AS eta_se,
CASE variant WHEN 'tied' THEN eta WHEN 'untied' THEN 0.4 WHEN 'growth' THEN 0.2 END AS eta_growth,
CASE WHEN any_value(sequences) > 1 THEN eta_growth / 10 END AS eta_growth_se,
CASE WHEN variant IN ('tied', 'untied') THEN 1.5 END AS omega,
CASE WHEN any_value(sequences) > 1 THEN omega / 100 END AS omega_se,
CASE
    WHEN variant IN ('tied', 'untied') THEN max(position) - positions * 3 // 4
    WHEN variant = 'growth' THEN max(position) - positions // 4
    ELSE CASE WHEN status = 'ok' THEN max(position) END
END AS t_1,
CASE WHEN variant IN ('tied', 'untied') THEN max(position) - positions // 4 ELSE t_1 END AS t_2,
CASE WHEN status = 'ok' THEN -10 END AS bic_plateau, bic_plateau - 1 AS bic_growth,
bic_plateau - 2 AS bic_tied, bic_plateau - 3 AS bic_untied,
CASE WHEN status = 'ok' THEN 0.8 END AS r2_log, CASE WHEN status = 'ok' THEN 0.3 END AS mae_log
"""

_WEIGHTS = f"""
SELECT study, query, layer, head, {_FIT_OF_WEIGHTS}
FROM (SELECT *, mean_weight::DOUBLE AS weight FROM attention_by_position)
GROUP BY study, query, layer, head
"""

_WEIGHTS_MODEL = f"""
SELECT
    study, query,
    (SELECT count(*) FROM (SELECT DISTINCT layer, head FROM attention_by_position)) AS heads,
    {_FIT_OF_WEIGHTS}
FROM (
    SELECT study, query, 0 AS layer, 0 AS head, position, any_value(sequences) AS sequences,
        avg(mean_weight::DOUBLE) AS weight
    FROM attention_by_position
    GROUP BY study, query, position
)
GROUP BY study, query, layer, head
"""


def _intervals(mean: str) -> str:
    """Each metric's mean, with ends at most 0.02 from it, where there are several sequences."""
    several = "CASE WHEN any_value(sequences) > 1 THEN"
    return ", ".join(
        f"avg({metric}) AS {metric}, {several} greatest(avg({metric}) - 0.02, 0) END AS {metric}_ci_low, "
        f"{several} least(avg({metric}) + 0.02, 1) END AS {metric}_ci_high"
        for metric in METRICS
    ).replace("avg(", f"{mean}(")


_MEANS = f"""
SELECT study, query, layer, head, n, any_value(sequences) AS sequences, {_intervals("avg")}
FROM (
    SELECT
        study, query, layer, head, n, count(*) OVER (PARTITION BY study, query, layer, head, n) AS sequences,
        n / (n + k_out) AS precision, k_in / n AS recall, 2 * k_in / (n + k_in) AS f_r_min,
        2 * n / (2 * n + k_out) AS f_r_max, 1 - k_out / (n_keys - n) AS specificity,
        (precision - n / n_keys) / (1 - n / n_keys) AS precision_excess
    FROM selection_counts
)
GROUP BY study, query, layer, head, n
"""

_MEANS_MODEL = f"""
SELECT study, query, n, count(*) AS heads, any_value(sequences) AS sequences, {_intervals("avg")}
FROM selection_means
GROUP BY study, query, n
"""

_SINK_EFFECT = """
SELECT
    study, query, n, count(rho_0) AS heads, max(sequences) AS sequences,
    stddev_pop(recall) FILTER (WHERE rho_0 IS NOT NULL) AS sd_recall,
    CASE WHEN count(rho_0) > 2 AND least(sd_recall, stddev_pop(rho_0)) > 1e-9 THEN corr(recall, rho_0) END
        AS correlation,
    CASE WHEN max(sequences) > 1 THEN correlation END AS estimate,
    CASE WHEN estimate IS NOT NULL THEN greatest(estimate - 0.15, -1) END AS correlation_ci_low,
    CASE WHEN estimate IS NOT NULL THEN least(estimate + 0.1, 1) END AS correlation_ci_high
FROM selection_means
JOIN heads USING (study, layer, head)
JOIN (
    SELECT study, query, layer, kv_head, avg(rho_0::DOUBLE) AS rho_0
    FROM value_scales
    GROUP BY study, query, layer, kv_head
) USING (study, query, layer, kv_head)
GROUP BY study, query, n
"""

_OF_HEADS = """
WITH means AS (
    SELECT
        study, query, layer, head, n, count(*)::INTEGER AS sequences, avg(n / (n + k_out)) AS precision,
        avg(k_in / n) AS recall, avg(2 * n / (2 * n + k_out)) AS f_r_max, avg(2 * k_in / (n + k_in)) AS f_r_min,
        avg(1 - k_out / (n_keys - n)) AS specificity, (recall + specificity) / 2 AS auc
    FROM selection_counts
    GROUP BY study, query, layer, head, n
)
"""

_SEPARABILITY = f"""
{_OF_HEADS}, grid AS (
    SELECT DISTINCT floor(((SELECT max(n_keys) FROM selection_counts) - 1) ** (step / 47) + 0.5)::INTEGER AS n
    FROM range(48) AS steps (step)
), measured AS (
    UNPIVOT means ON precision, recall, f_r_max, f_r_min, specificity, auc INTO NAME measure VALUE value
)
SELECT
    * EXCLUDE share, 1 AS draws, share * value AS null_value, value - null_value AS difference,
    CASE WHEN sequences > 1 THEN 0.01 END AS se,
    CASE WHEN sequences > 1 THEN difference - 0.02 END AS low,
    CASE WHEN sequences > 1 THEN least(difference + 0.02, 1) END AS high
FROM measured
SEMI JOIN grid USING (n), (VALUES ('random_selection', 0.8), ('shuffled_values', 0.98)) AS nulls (null_model, share)
"""

_SEPARABILITY_MODEL = """
SELECT
    study, query, n, measure, null_model, count(*)::INTEGER AS heads, any_value(sequences) AS sequences,
    any_value(draws) AS draws, avg(value) AS value, avg(null_value) AS null_value, avg(difference) AS difference,
    avg(se) AS se, avg(low) AS low, avg(high) AS high
FROM separability
GROUP BY study, query, n, measure, null_model
"""

_SEPARATION_CURVES = """
WITH longest AS (
    SELECT study, query, layer, head, max(n_keys) AS n_keys
    FROM selection_counts
    WHERE query = (SELECT max(query) FROM selection_counts)
    GROUP BY study, query, layer, head
), ranked AS (
    SELECT *, ['highest', 'median', 'lowest'][row_number() OVER (ORDER BY layer, head)] AS auc_rank
    FROM longest
    QUALIFY auc_rank IS NOT NULL
)
SELECT
    study, query, layer, head, auc_rank, 0 AS sequence, n, n_keys, 0.75 AS auc, point::INTEGER AS point,
    1.5 + point::DOUBLE AS radius,
    greatest(point + 1 - (n_keys - n), least(n, (point + 2) // 2)) AS selected,
    selected / (point + 1) AS precision, selected / n AS recall,
    (point + 1 - selected) / (n_keys - n) AS false_positive_share
FROM ranked, (VALUES (4), (16)) AS selections (n), range(n_keys) AS points (point)
WHERE n < n_keys AND (point % (1 + n_keys // 200) = 0 OR point = n_keys - 1)
"""
"""At most 200 points of a curve, as the program keeps."""

_ARITHMETIC = f"""
{_OF_HEADS.replace("FROM selection_counts", "FROM selection_counts WHERE sequence < 2")}
SELECT
    study, query, layer, head, arithmetic, any_value(sequences) AS sequences, count(*)::INTEGER AS n_values,
    share AS recall_differs, share / 2 AS precision_differs, share / 4 AS recall_difference,
    -share / 5 AS precision_difference, avg(recall) FILTER (WHERE n = 4) AS recall_at_4,
    avg(precision) FILTER (WHERE n = 4) AS precision_at_4,
    CASE WHEN recall_at_4 IS NOT NULL THEN share / 10 END AS recall_difference_at_4,
    CASE WHEN recall_at_4 IS NOT NULL THEN -share / 10 END AS precision_difference_at_4
FROM (
    SELECT *, most / (1 + layer) AS share
    FROM means, (VALUES ('float32_loop', 0.1), ('float32_cdist', 0.2), ('float64_literal', 0.0)) AS arithmetics (
        arithmetic, most
    )
)
WHERE query = (SELECT max(query) FROM selection_counts)
GROUP BY study, query, layer, head, arithmetic, share
"""

_CONTRIBUTIONS = """
SELECT
    study, query, layer, head, position, weights.sequences, mean_weight * mean_norm AS mean_norm_y,
    mean_norm_y / 4 AS sd_norm_y,
    CASE WHEN mean_norm > 0 THEN (0.1 + 0.9 * exp((position - query) / 4)) END::FLOAT AS mean_cos_last,
    CASE
        WHEN mean_norm > 0 AND min(position) OVER (PARTITION BY study, query, layer, head) = 0
            THEN CASE position WHEN 0 THEN 1 ELSE 0.3 * cos(position / 5 + layer) END
    END::FLOAT AS mean_cos_sink
FROM attention_by_position AS weights
JOIN heads USING (study, layer, head)
JOIN value_norm_by_position USING (study, layer, kv_head, position)
"""

_DIRECTIONS = """
SELECT
    study, layer, kv_head, any_value(norms.sequences) AS sequences,
    CASE WHEN coalesce(max(mean_norm) FILTER (WHERE position > 0), 0) = 0 THEN 'zero' ELSE 'ok' END AS status,
    CASE WHEN status = 'ok' THEN any_value(head_dim) END AS directions,
    0.9::DOUBLE - 0.5::DOUBLE / (1 + layer) - 0.1::DOUBLE / (1 + kv_head) AS ratio,
    (1 - ratio) / (1 - ratio ** directions) AS share_1,
    CASE WHEN directions > 1 THEN share_1 * ratio ELSE 0 * share_1 END AS share_2,
    CASE WHEN directions > 2 THEN share_1 * ratio ** 2 ELSE 0 * share_1 END AS share_3,
    (1 - ratio ** 2) / (1 - ratio ** (2 * directions)) / share_1 ** 2 AS effective_dimension
FROM value_norm_by_position AS norms
JOIN (SELECT DISTINCT study, layer, kv_head, head_dim FROM heads) USING (study, layer, kv_head)
GROUP BY study, layer, kv_head
"""

_POINTS = """
SELECT
    study, layer, kv_head, position,
    (0.3 + CASE position WHEN 0 THEN -0.8 ELSE 0.5 * cos(position) END)::FLOAT AS x,
    CASE WHEN head_dim > 1 THEN 0.4 * sin(position / 7 + layer) ELSE 0 END::FLOAT AS y,
    CASE WHEN head_dim > 2 THEN 0.3 * sin(position * 1.3 + kv_head) ELSE 0 END::FLOAT AS z
FROM value_norm_by_position
JOIN (SELECT DISTINCT study, layer, kv_head, head_dim FROM heads) USING (study, layer, kv_head)
WHERE mean_norm > 0
QUALIFY max(mean_norm) FILTER (WHERE position > 0) OVER (PARTITION BY study, layer, kv_head) > 0
"""

_EFFECTS = """
SELECT
    study, parameter, 8 AS n, 0.5 AS kappa, 'unit' AS scale, 16 AS draws, 2.0 AS base, 1.0 AS low, 4.0 AS high,
    0.2 AS precision_lower_low, 0.2 + 0.1 * effect AS precision_lower_high,
    0.0 AS recall_lower_low, greatest(0, 0.1 * effect) AS recall_lower_high,
    3.0 AS log_miss_low, 3.0 - effect AS log_miss_high, effect, NULL::VARCHAR AS untested, paper_effect,
    effect = paper_effect AS agrees
FROM studies, (VALUES
    ('d', 1, 1), ('L', -1, -1), ('N', -1, NULL), ('a_0', 1, 1), ('a_min_in', 1, 1), ('a_max_out', -1, -1),
    ('beta', 0, 1), ('eta', 1, NULL), ('omega', 0, NULL), ('T_1', -1, NULL), ('T_2', 1, NULL)
) AS effects (parameter, effect, paper_effect)
"""

_MONTE_CARLO = """
SELECT
    study, sizes.head_dim, 64 AS n_keys, n, beta, 0.2 AS lambda_sink, 0 AS rho_0, family, kappa, scale, 50 AS draws,
    CASE WHEN family <> 'printed' OR n > 1 THEN 1 END AS bounded,
    CASE family WHEN 'printed' THEN bounded END AS both_sides,
    both_sides * 0.5 AS premise_share,
    CASE family WHEN 'printed' THEN n > 4 ELSE isinf(beta) END AS meets_assumptions,
    bounded * CASE WHEN family = 'printed' AND n = 4 AND sizes.head_dim = 16 THEN -0.1 ELSE 0.2 END AS precision_gap,
    0.6 AS precision, 0.01 AS precision_se, precision - precision_gap AS precision_lower,
    both_sides * 0.95 AS precision_upper,
    (precision_gap > 0)::INTEGER AS precision_lower_share,
    both_sides AS precision_upper_share,
    precision_upper - precision AS precision_upper_gap,
    precision_gap > -0.03 AS precision_holds,
    precision_upper_gap > -0.03 AS precision_upper_holds,
    bounded * 0.4 AS recall_gap, 0.5 AS recall, 0.01 AS recall_se, recall - recall_gap AS recall_lower,
    both_sides * 0.45 AS recall_upper,
    bounded AS recall_lower_share,
    both_sides * 0.3 AS recall_upper_share,
    recall_upper - recall AS recall_upper_gap,
    recall_gap > -0.03 AS recall_holds,
    recall_upper_gap > -0.03 AS recall_upper_holds
FROM
    studies,
    (VALUES (16), (64)) AS sizes (head_dim),
    (VALUES (1), (4), (16)) AS selections (n),
    (VALUES (0.5), ('inf'::DOUBLE)) AS decays (beta),
    (VALUES ('printed', 0.5, 'unit'), ('printed', 5, 'unit'), ('scale_free', NULL, NULL)) AS families (
        family, kappa, scale
    )
"""

_PLANTED = """
SELECT
    study, query, layer, head, kv_head, c * 1.01 AS c, lambda_sink * 0.98 AS lambda_sink,
    0.31 + 0.2 * layer AS beta, 0.06 + 0.02 * layer AS rho_0, weights.p_sink, weights.p_base * 1.02 AS p_base,
    0.32 AS eta, 0.41 AS eta_growth, 1.51 AS omega, coalesce(t_1, 1) AS t_1, coalesce(t_2, 2) AS t_2
FROM heads
JOIN assumption_norms AS norms USING (study, layer, kv_head)
JOIN assumption_weights AS weights USING (study, layer, head)
WHERE weights.p_sink IS NOT NULL AND weights.p_base IS NOT NULL
"""

_REGIMES = """
SELECT
    study, sequence, query, layer, head, regime, start AS first_n, least(stop, n_keys - 1) AS last_n,
    CASE WHEN start > 1 THEN 0.5 - start / 10 END AS margin_first,
    margin_first - 0.05 AS margin_last,
    CASE WHEN last_n > first_n THEN (margin_last - margin_first) / ln(last_n / first_n) END AS slope,
    CASE WHEN start > 1 THEN (margin_first > 0)::INTEGER END AS positive_share
FROM attention_rows
JOIN assumption_weights USING (study, query, layer, head)
JOIN (
    VALUES (true, 'I', 1, 1), (true, 'II', 2, 3), (true, 'III', 4, 5), (true, 'IV', 6, 8), (true, 'V', 9, 99999),
        (false, 'I', 1, 1), (false, 'IV', 2, 8), (false, 'V', 9, 99999)
) AS regimes (oscillates, regime, start, stop) ON oscillates = (omega IS NOT NULL)
WHERE status = 'ok' AND start < n_keys
"""

_CLAIM_ESTIMATES = """
SELECT
    study, claim, least_rows + 1 AS rows, 2 AS clusters, sequences, NULL::DOUBLE AS premise_value,
    CASE WHEN sequences = 1 OR turn = 3 THEN 'it is made up' END AS reason,
    CASE WHEN direction IN ('<=', '<') THEN -1 ELSE 1 END * abs(threshold + 1) AS inward,
    CASE turn WHEN 0 THEN threshold + inward WHEN 1 THEN threshold - inward WHEN 2 THEN threshold END AS value,
    CASE WHEN reason IS NULL THEN value - 0.01 * abs(inward) END AS low,
    CASE WHEN reason IS NULL THEN value + 0.01 * abs(inward) END AS high
FROM
    (SELECT *, (row_number() OVER (ORDER BY claim) - 1) % 4 AS turn FROM stated_claims),
    (SELECT study, sequences FROM studies)
"""
"""Claims in turn supported, not supported, undecided and not testable; of one sequence none testable."""

_ABLATION = """
SELECT
    study, layer, head, kind, 4 AS sequences, 2.0 AS plain_loss,
    CASE WHEN kind <> 'sink' OR layer > 0 THEN 0.01 * (1 + head) - 0.015 * layer END AS delta_loss,
    delta_loss - 0.01 AS delta_loss_ci_low, delta_loss + 0.01 AS delta_loss_ci_high,
    abs(delta_loss) * 2 AS kl, abs(delta_loss) AS kl_ci_low, abs(delta_loss) * 3 AS kl_ci_high
FROM heads, (VALUES ('zero'), ('sink')) AS kinds (kind)
"""

_SPARSIFIED = """
SELECT
    study, policy, setting, budget, (budget * 50)::INTEGER AS keys,
    CASE policy WHEN 'sink_recent' THEN 'statistics' ELSE 'weights' END AS needs,
    4 AS sequences, budget * 48 AS keys_kept, 2.0 AS plain_loss,
    factor * 0.01 / budget AS delta_loss, delta_loss * 0.9 AS delta_loss_ci_low, delta_loss * 1.1 AS delta_loss_ci_high,
    delta_loss * 2 AS kl, delta_loss AS kl_ci_low, delta_loss * 3 AS kl_ci_high,
    (factor - 1) * 0.01 / budget AS excess_loss,
    excess_loss * 0.9 AS excess_loss_ci_low, excess_loss * 1.1 AS excess_loss_ci_high
FROM
    studies,
    (VALUES ('same_n', 'N', 1), ('elbow', 'mean N', 1.2), ('sink_recent', 'sink=4', 9)) AS policies (
        policy, setting, factor
    ),
    (VALUES (0.1), (0.5)) AS budgets (budget)
"""

_SPARSIFIED_BY_SEQUENCE = """
SELECT study, policy, setting, budget, sequence::INTEGER AS sequence, plain_loss, plain_loss + delta_loss AS loss
FROM sparsified_loss, range(4) AS held_out (sequence)
"""

_SCORES = """
SELECT study, source, 'csv' AS format, layer, head, 0.1 * head + layer AS score
FROM heads, (VALUES ('one'), ('two')) AS sources (source)
"""

_SELECTS = {
    "assumption_norms": _NORMS,
    "sink_similarity": _SINK_SIMILARITY,
    "cosine_by_distance": _COSINES,
    "assumption_similarity": _SIMILARITY,
    "assumption_similarity_model": _SIMILARITY_MODEL,
    "assumption_weights": _WEIGHTS,
    "assumption_weights_model": _WEIGHTS_MODEL,
    "selection_means": _MEANS,
    "selection_means_model": _MEANS_MODEL,
    "sink_effect": _SINK_EFFECT,
    "separability": _SEPARABILITY,
    "separability_model": _SEPARABILITY_MODEL,
    "separation_curves": _SEPARATION_CURVES,
    "arithmetic": _ARITHMETIC,
    "contributions": _CONTRIBUTIONS,
    "principal_directions": _DIRECTIONS,
    "value_directions": _POINTS,
    "parameter_effects": _EFFECTS,
    "monte_carlo": _MONTE_CARLO,
    "head_ablation": _ABLATION,
    "sparsified_loss": _SPARSIFIED,
    "sparsified_loss_by_sequence": _SPARSIFIED_BY_SEQUENCE,
    "external_scores": _SCORES,
    "planted_assumptions": _PLANTED,
    "regimes_by_sequence": _REGIMES,
    "claim_estimates": _CLAIM_ESTIMATES,
    **LIMITS,
}
"""For each table its rows, from those of the tables before it."""


_AIDS = {"ok", "several", "bounded", "both_sides", "directions", "ratio", "sd_recall", "estimate", "inward", "selected"}
"""Columns that others are made of."""


def summaries(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Rows of every table that summarises a study and is not derived in SQL.

    Parameters
    ----------
    tables
        Rows of one study: of ``studies``, ``heads``, ``selection_counts``, ``attention_rows``, ``value_scales``,
        ``attention_by_position`` and ``value_norm_by_position``. Only sizes, counts, distances, weights and norms are
        read from them.
    """
    found: dict[str, pa.Table] = {}
    with duckdb.connect() as connection:
        for name, rows in tables.items():
            connection.register(name, rows)
        connection.register("stated_claims", pa.Table.from_pylist(list(read_paper_claims())))
        for name, select in _SELECTS.items():
            rows = connection.sql(f"FROM ({select}) ORDER BY ALL").to_arrow_table()
            kept = pa.schema(_no_decimal(field) for field in rows.schema if field.name not in _AIDS)
            found[name] = rows.select(kept.names).cast(kept)
            connection.register(name, found[name])
    return found


def _no_decimal(field: pa.Field) -> pa.Field:
    """The field as the warehouse has it: SQL takes 0.1 for a decimal."""
    return field.with_type(pa.float64()) if pa.types.is_decimal(field.type) else field
