-- grain:   one row per query
-- inputs:  convergence_model, convergence; $study
-- meaning: how close the model's weights are to uniform ones at each context size, mean and 10 % and 90 % quantiles
--          over heads; n_keys: largest number of keys of a head
WITH keys AS (
    SELECT query, max(n_keys) AS n_keys
    FROM convergence
    WHERE study = $study
    GROUP BY query
)
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
    n_90_share_p90,
    largest_deviation
FROM convergence_model
JOIN keys USING (query)
WHERE study = $study
ORDER BY query
