-- grain:   one row per (query, n)
-- inputs:  selection_means_model, limit_exponents, keys_of_queries, log_grid; $study
-- meaning: mean distance of the selected keys from the rest, divided by the norm of each head's output, and the same
--          for N random keys, on a log grid of n up to the number of keys of the query; fitted: the fitted power of N,
--          up to half of the keys, NULL beyond; n_keys: largest number of keys of a head
WITH grid AS (FROM log_grid((SELECT max(n) FROM selection_means_model WHERE study = $study), points := 48)),
fits AS (
    SELECT query, level, exponent
    FROM limit_exponents
    WHERE study = $study AND measure = 'distance' AND axis = 'n'
)
SELECT
    query, n_keys, means.n, heads, sequences, relative_distance,
    relative_distance_low AS low,
    relative_distance_high AS high,
    relative_random_distance,
    relative_distance / nullif(relative_random_distance, 0) AS beside_random,
    CASE WHEN 2 * means.n <= n_keys THEN level * means.n ** exponent END AS fitted
FROM selection_means_model AS means
SEMI JOIN grid ON means.n = point
JOIN keys_of_queries($study) USING (query)
LEFT JOIN fits USING (query)
WHERE study = $study
ORDER BY query, means.n
