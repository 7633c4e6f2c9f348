"""Made-up rows of the tables about the limits of selection: possible ones, which no model has seen.

Holds ``LIMITS``, further SELECTs for ``tests.sql.made_up``.
"""

_RANDOM = """
sqrt(
    4 * n * (keys - n) / (keys * (keys - 1)) * (norm_contributions ** 2 - norm_output ** 2 / keys)
    + (1 - 2 * n / keys) ** 2 * norm_output ** 2
)
"""

_FIT = """
'ok' AS status, 0.5::DOUBLE + 0.01 * hash(measure) % 7 AS slope, CASE WHEN several THEN 0.1::DOUBLE END AS slope_se,
CASE WHEN several THEN slope - 0.3 END AS slope_low, CASE WHEN several THEN slope + 0.3 END AS slope_high,
-1::DOUBLE AS intercept, CASE WHEN several THEN 0.2::DOUBLE END AS intercept_se, 0.9::DOUBLE AS r2,
24 AS points, 1 AS left_out, CASE WHEN several THEN 3 ELSE 1 END AS clusters
"""
"""A fit of a head, whose clusters are sequences."""

_OF_MODEL = _FIT.replace("several", "true")
"""A fit of the model, whose clusters are KV groups."""

_DISTANCE_MEANS = f"""
SELECT
    study, query, layer, head, n, count(*) AS sequences,
    avg(distance_rest::DOUBLE) AS distance, CASE WHEN count(*) > 1 THEN 0.01::DOUBLE END AS distance_se,
    avg(random) AS random_distance,
    avg(distance_rest::DOUBLE / nullif(norm_output, 0)) AS relative_distance,
    CASE WHEN relative_distance IS NOT NULL THEN distance_se END AS relative_distance_se,
    avg(random / nullif(norm_output, 0)) AS relative_random_distance
FROM (
    SELECT
        study, query, layer, head, n, distance_rest, norm_output::DOUBLE AS norm_output,
        norm_contributions::DOUBLE AS norm_contributions, selection_counts.n_keys::DOUBLE AS keys, {_RANDOM} AS random
    FROM selection_counts
    JOIN attention_rows USING (study, sequence, query, layer, head)
)
GROUP BY study, query, layer, head, n
"""

_DISTANCE_MEANS_MODEL = """
SELECT
    study, query, n, count(relative_distance) AS heads, any_value(sequences) AS sequences,
    avg(relative_distance) AS relative_distance, any_value(relative_distance_se) AS relative_distance_se,
    avg(relative_random_distance) AS relative_random_distance
FROM distance_means
GROUP BY study, query, n
HAVING count(relative_distance) > 0
"""

_DISTANCE_FITS = f"""
SELECT DISTINCT study, measure, 'n' AS axis, query, NULL::INTEGER AS n, layer, head, sequences > 1 AS several, {_FIT}
FROM distance_means, (VALUES ('distance'), ('random_distance')) AS measures (measure)
"""

_DISTANCE_FITS_MODEL = f"""
SELECT DISTINCT study, measure, axis, query, n, {_OF_MODEL} FROM distance_fits
"""

_CONVERGENCE = """
SELECT
    study, query, layer, head, n_keys, count(*) AS sequences,
    (1 + (n_keys - 1) / (2::DOUBLE + layer)) / n_keys AS effective_share, effective_share AS n_90_share,
    (1 - 1 / n_keys) / (2::DOUBLE + head) AS largest_deviation,
    CASE WHEN count(*) > 1 THEN 0.01::DOUBLE END AS effective_share_se, effective_share_se AS n_90_share_se,
    effective_share_se AS largest_deviation_se
FROM attention_rows
GROUP BY study, query, layer, head, n_keys
"""

_SHARES = ("effective_share", "n_90_share", "largest_deviation")

_CONVERGENCE_MODEL = f"""
SELECT
    study, query, count(*) AS heads, any_value(sequences) AS sequences,
    {", ".join(f"avg({name}) AS {name}, avg({name}_se) AS {name}_se" for name in _SHARES)},
    {", ".join(f"quantile_cont({name}, 0.1) AS {name}_p10" for name in _SHARES)},
    {", ".join(f"quantile_cont({name}, 0.9) AS {name}_p90" for name in _SHARES)}
FROM convergence
GROUP BY study, query
"""

_MEASURES = "(VALUES ('effective_share'), ('n_90_share'), ('largest_deviation')) AS measures (measure)"

_CONVERGENCE_FITS = f"""
SELECT DISTINCT study, measure, layer, head, sequences > 1 AS several, {_FIT} FROM convergence, {_MEASURES}
"""

_CONVERGENCE_FITS_MODEL = f"""
SELECT DISTINCT study, measure, {_OF_MODEL} FROM convergence_fits
"""

_TEMPERATURES = "(VALUES (0.25::DOUBLE), (1::DOUBLE), (4::DOUBLE)) AS temperatures (temperature)"

_TEMPERATURE_MEANS = f"""
SELECT
    study, query, layer, head, temperature, n, sequences,
    greatest(0.8, n / (last_n + 1)) AS precision, (0.5 + 0.1 * layer / (1 + layer))::DOUBLE AS recall,
    0.7::DOUBLE AS specificity, 0.9 - 0.1 * abs(ln(temperature) - 0.3 * head) / 4 AS auc,
    distance, random_distance, CASE WHEN sequences > 1 THEN 0.01::DOUBLE END AS recall_gain_se,
    recall_gain_se AS auc_gain_se
FROM (
    SELECT *, max(n) OVER (PARTITION BY study, query, layer, head) AS last_n
    FROM distance_means
), {_TEMPERATURES}
WHERE n & (n - 1) = 0 OR n = last_n
"""

_TEMPERATURE_CONCENTRATION = f"""
SELECT
    study, query, layer, head, temperature, sequences,
    greatest(1, effective_share * n_keys * temperature / 4) AS effective_keys,
    1::DOUBLE AS n_50, 1::DOUBLE AS n_90, 1::DOUBLE AS n_99, 1 / (1 + temperature) AS top_weight,
    0::DOUBLE AS largest_deviation, 1::DOUBLE AS effective_contributors, 0::DOUBLE AS underflowed
FROM convergence, {_TEMPERATURES}
"""

_SENSITIVITY = f"""
SELECT
    study, sequence, query, layer, head, temperature,
    (0.2 + 0.2 * layer / (1 + layer) + 0.01 * (head % 4)) / temperature AS spectral_norm
FROM attention_rows, {_TEMPERATURES}
"""

_LOGIT_RANGE = """
SELECT
    study, sequence, query, layer, head, n_keys, (1.5 + 0.1 * layer)::FLOAT AS query_norm, 2::FLOAT AS key_norm,
    CASE layer WHEN 1 THEN 5 END::FLOAT AS logit_cap, exp(-1 - 0.1 * head) / n_keys AS least_weight,
    least(1, exp(0.5 + 0.1 * head) / n_keys) AS largest_weight, 0 AS underflowed
FROM attention_rows
"""

LIMITS = {
    "distance_means": _DISTANCE_MEANS,
    "distance_means_model": _DISTANCE_MEANS_MODEL,
    "distance_fits": _DISTANCE_FITS,
    "distance_fits_model": _DISTANCE_FITS_MODEL,
    "convergence": _CONVERGENCE,
    "convergence_model": _CONVERGENCE_MODEL,
    "convergence_fits": _CONVERGENCE_FITS,
    "convergence_fits_model": _CONVERGENCE_FITS_MODEL,
    "temperature_means": _TEMPERATURE_MEANS,
    "temperature_concentration": _TEMPERATURE_CONCENTRATION,
    "sensitivity": _SENSITIVITY,
    "logit_range": _LOGIT_RANGE,
}
"""For each table its rows, from those of the tables before it and of those that ``tests.sql.made_up`` is given."""
