-- grain:   one row per (query, layer, head) whose elbow is missing, duplicated, or in an impossible place
-- inputs:  elbows, elbows_model, attention_rows
-- meaning: every head with two keys either has an elbow with 2 < elbow_n < lowest_n <= n_keys - 1 and a mean at
--          least that at lowest_n, or has none and a curve that does not bend, is lowest at N = 2, or consists of N = 1
--          alone; the same for the model, whose layer and head are NULL
WITH expected AS (
    SELECT query, layer, head, max(n_keys) - 1 AS last_n
    FROM attention_rows
    WHERE study = $study
    GROUP BY GROUPING SETS ((query, layer, head), (query))
    HAVING max(n_keys) > 1
),
actual AS (
    SELECT *
    FROM (FROM elbows UNION ALL BY NAME FROM elbows_model)
    WHERE study = $study
)
SELECT
    coalesce(actual.query, expected.query) AS query,
    coalesce(actual.layer, expected.layer) AS layer,
    coalesce(actual.head, expected.head) AS head,
    count(actual.study) AS rows,
    any_value(status) AS status,
    any_value(elbow_n) AS elbow_n,
    any_value(lowest_n) AS lowest_n
FROM actual
FULL JOIN expected
    ON actual.query = expected.query
    AND actual.layer IS NOT DISTINCT FROM expected.layer
    AND actual.head IS NOT DISTINCT FROM expected.head
GROUP BY ALL
HAVING
    count(actual.study) <> 1
    OR count(expected.query) <> 1
    OR NOT bool_and(
        coalesce(
            CASE status
                WHEN 'ok' THEN
                    elbow_n > 2
                    AND elbow_n < lowest_n
                    AND lowest_n > 2
                    AND lowest_n <= last_n
                    AND harmonic_mean >= lowest_harmonic_mean
                WHEN 'no_bend' THEN
                    elbow_n IS NULL AND harmonic_mean IS NULL AND lowest_n > 2 AND lowest_n <= last_n
                WHEN 'no_decline' THEN elbow_n IS NULL AND harmonic_mean IS NULL AND lowest_n = 2
                WHEN 'trivial' THEN elbow_n IS NULL AND harmonic_mean IS NULL AND lowest_n IS NULL AND last_n = 1
            END,
            false
        )
    )
