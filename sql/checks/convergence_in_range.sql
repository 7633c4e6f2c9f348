-- grain:   one row per (query, layer, head) whose convergence is missing, duplicated, or impossible
-- inputs:  convergence, convergence_model, attention_rows
-- meaning: every head has one row for every query, and the model, whose layer and head are NULL, one; effective_share lies
--          between 1 / n_keys and 1, n_90_share between 1 / n_keys and 1, largest_deviation between 0 and 1 - 1 / n_keys
--          (each up to rounding), quantiles over heads in order
WITH wanted AS (
    SELECT query, layer, head, max(n_keys) AS n_keys
    FROM attention_rows
    WHERE study = $study
    GROUP BY GROUPING SETS ((query, layer, head), (query))
),
found AS (
    SELECT
        *,
        least(effective_share, n_90_share) > 0
        AND greatest(effective_share, n_90_share) <= 1 + 1e-6
        AND largest_deviation BETWEEN -1e-6 AND 1
        AND coalesce(least(effective_share, n_90_share) * n_keys >= 1 - 1e-6, true)
        AND coalesce(largest_deviation <= 1 - 1 / n_keys + 1e-6, true)
        AND coalesce(
            effective_share_p10 <= effective_share_p90
            AND n_90_share_p10 <= n_90_share_p90
            AND largest_deviation_p10 <= largest_deviation_p90,
            true
        )
        AND (effective_share_se IS NULL) = (sequences = 1) AS possible
    FROM (FROM convergence UNION ALL BY NAME FROM convergence_model)
    WHERE study = $study
)
SELECT
    coalesce(found.query, wanted.query) AS query,
    coalesce(found.layer, wanted.layer) AS layer,
    coalesce(found.head, wanted.head) AS head,
    count(found.study) AS found,
    any_value(possible) AS possible
FROM found
FULL JOIN wanted
    ON found.query = wanted.query
    AND found.layer IS NOT DISTINCT FROM wanted.layer
    AND found.head IS NOT DISTINCT FROM wanted.head
GROUP BY ALL
HAVING
    count(found.study) <> 1
    OR count(wanted.query) <> 1
    OR NOT coalesce(bool_and(possible), false)
    OR any_value(found.n_keys) <> any_value(wanted.n_keys)
