-- grain:   one row
-- inputs:  head_pattern_means; $study
-- meaning: in how many layers of all with attention a window hides position 0 from some queries, from how many queries
--          of a sequence it does not in the layers with the narrowest and the widest window, and how many queries there are
SELECT
    count(*) FILTER (seen < queries) AS layers,
    count(*) AS all_layers,
    min(seen) FILTER (seen < queries)::INTEGER AS fewest,
    max(seen) FILTER (seen < queries)::INTEGER AS most,
    max(queries)::INTEGER AS queries
FROM (
    SELECT
        max(queries) FILTER (pattern = 'sink') AS seen,
        max(queries) FILTER (pattern = 'self') AS queries
    FROM head_pattern_means
    WHERE study = $study AND text = 'corpus'
    GROUP BY layer
)
