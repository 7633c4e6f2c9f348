-- grain:   one row per query
-- inputs:  convergence, key_budgets_model, keys_of_queries; $study
-- meaning: how close the model's weights are to uniform ones at each context size, mean and 10 % and 90 % quantiles
--          over heads; n_keys, least_keys: largest and smallest number of keys of a head
SELECT
    query, keys.n_keys, least_keys, heads, sequences, effective_share, effective_share_p10,
    effective_share_p90, n_90_share, n_90_share_p10, n_90_share_p90
FROM key_budgets_model
JOIN keys_of_queries($study) AS keys USING (query)
JOIN (
    SELECT query, min(n_keys) AS least_keys FROM convergence WHERE study = $study GROUP BY query
) AS fewest USING (query)
WHERE study = $study AND layer IS NULL
ORDER BY query
