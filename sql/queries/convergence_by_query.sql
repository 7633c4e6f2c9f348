-- grain:   one row per query
-- inputs:  convergence_model, keys_of_queries; $study
-- meaning: how close the model's weights are to uniform ones at each context size, mean and 10 % and 90 % quantiles
--          over heads; n_keys: largest number of keys of a head
SELECT
    query,
    n_keys,
    heads,
    sequences,
    effective_share,
    effective_share_p10,
    effective_share_p90,
    n_90_share,
    n_90_share_p10,
    n_90_share_p90
FROM convergence_model
JOIN keys_of_queries($study) USING (query)
WHERE study = $study
ORDER BY query
