-- grain:   one row per (query, layer, head) whose elbow is missing, duplicated, or in an impossible place
-- inputs:  elbows, elbows_model, attention_rows
-- meaning: every head with two keys either has an elbow with 2 < elbow_n < lowest_n <= n_keys - 1 and separability at
--          least that at lowest_n, or has none and a curve that does not bend, is lowest at N = 2, or consists of N = 1
--          alone; the same for the model, whose layer and head are NULL
WITH wanted AS (
    SELECT query, layer, head, max(n_keys) - 1 AS last_n
    FROM attention_rows
    WHERE study = $study
    GROUP BY GROUPING SETS ((query, layer, head), (query))
    HAVING max(n_keys) > 1
),
found AS (
    SELECT *
    FROM (FROM elbows UNION ALL BY NAME FROM elbows_model)
    WHERE study = $study
)
SELECT
    coalesce(found.query, wanted.query) AS query,
    coalesce(found.layer, wanted.layer) AS layer,
    coalesce(found.head, wanted.head) AS head,
    count(found.study) AS found,
    any_value(status) AS status,
    any_value(elbow_n) AS elbow_n,
    any_value(lowest_n) AS lowest_n
FROM found
FULL JOIN wanted
    ON found.query = wanted.query
    AND found.layer IS NOT DISTINCT FROM wanted.layer
    AND found.head IS NOT DISTINCT FROM wanted.head
GROUP BY ALL
HAVING
    count(found.study) <> 1
    OR count(wanted.query) <> 1
    OR NOT bool_and(
        coalesce(
            CASE status
                WHEN 'ok' THEN
                    elbow_n > 2
                    AND elbow_n < lowest_n
                    AND lowest_n > 2
                    AND lowest_n <= last_n
                    AND separability >= lowest_separability
                WHEN 'no_bend' THEN
                    elbow_n IS NULL AND separability IS NULL AND lowest_n > 2 AND lowest_n <= last_n
                WHEN 'no_decline' THEN elbow_n IS NULL AND separability IS NULL AND lowest_n = 2
                WHEN 'trivial' THEN elbow_n IS NULL AND separability IS NULL AND lowest_n IS NULL AND last_n = 1
            END,
            false
        )
    )
