-- grain:   one row per study
-- inputs:  studies, attention_by_position, selection_counts; $study
-- meaning: what was run, with the position of the last query and the reach of N there (NULL if nothing was selected)
WITH last_query AS (
    SELECT max(query) AS query
    FROM attention_by_position
    WHERE study = $study
),
reach AS (
    SELECT max(n) AS last_n, min(n_keys) AS least_keys, max(n_keys) AS most_keys
    FROM selection_counts
    WHERE study = $study AND query = (SELECT query FROM last_query)
)
SELECT studies.*, last_query.query, reach.last_n, reach.least_keys, reach.most_keys
FROM studies, last_query, reach
WHERE studies.study = $study
