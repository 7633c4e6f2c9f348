-- grain:   one row per (query, layer, head) whose comparisons with nulls are missing, duplicated, or of another n
-- inputs:  separability, separability_model, attention_rows, log_grid
-- meaning: if the study draws nulls, every head with two keys has all six measures with both nulls at every n that it
--          has of the log grid of the longest query, and the model at every n that a head has; layer and head are NULL
--          for the model
WITH grid AS (
    FROM log_grid((SELECT max(n_keys) - 1 FROM attention_rows WHERE study = $study), points := 48)
),
measured AS (
    FROM separability
    WHERE study = $study
    UNION ALL BY NAME
    FROM separability_model
    WHERE study = $study
),
reach AS (
    SELECT query, layer, head, max(n_keys) AS n_keys
    FROM attention_rows
    WHERE study = $study
    GROUP BY GROUPING SETS ((query, layer, head), (query))
),
wanted AS (
    SELECT query, layer, head, count(*) * 12 AS expected
    FROM reach
    JOIN grid ON point < n_keys
    WHERE EXISTS (FROM measured)
    GROUP BY query, layer, head
),
found AS (
    SELECT
        query,
        layer,
        head,
        count(*) AS found,
        count(DISTINCT (n, measure, null_model)) AS several,
        count(point) AS on_grid,
        count(DISTINCT measure) AS measures,
        count(DISTINCT null_model) AS nulls
    FROM measured
    LEFT JOIN grid ON n = point
    GROUP BY query, layer, head
)
SELECT
    coalesce(found.query, wanted.query) AS query,
    coalesce(found.layer, wanted.layer) AS layer,
    coalesce(found.head, wanted.head) AS head,
    found,
    expected
FROM found
FULL JOIN wanted
    ON found.query = wanted.query
    AND found.layer IS NOT DISTINCT FROM wanted.layer
    AND found.head IS NOT DISTINCT FROM wanted.head
WHERE found IS DISTINCT FROM expected OR several <> found OR on_grid <> found OR measures <> 6 OR nulls <> 2
