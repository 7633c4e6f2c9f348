-- grain:   one row per study
-- inputs:  studies, model_sizes, attention_by_position, selection_counts, head_pattern_means; $study
-- meaning: the settings of a study, with the positions of all queries and of the last, the smallest and largest number
--          of keys of its heads, and the largest N; last_n: NULL if no query attends to two keys; grid_asked: whether
--          its settings have a Monte Carlo grid; probed: whether it read repeated tokens, too
WITH last_query AS (
    SELECT max(query) AS query, list_sort(list(DISTINCT query)) AS queries
    FROM attention_by_position
    WHERE study = $study
),
keys_by_head AS (
    SELECT count(*) AS n_keys
    FROM attention_by_position
    WHERE study = $study AND query = (SELECT query FROM last_query)
    GROUP BY layer, head
),
keys AS (
    SELECT min(n_keys) AS least_keys, max(n_keys) AS most_keys
    FROM keys_by_head
),
reach AS (
    SELECT max(n) AS last_n
    FROM selection_counts
    WHERE study = $study AND query = (SELECT query FROM last_query)
)
SELECT
    studies.*,
    model_sizes.* EXCLUDE study,
    studies.provenance ->> '$.summaries.bounds_in_expectation.settings.monte_carlo' IS NOT NULL AS grid_asked,
    EXISTS (FROM head_pattern_means WHERE study = $study AND text = 'probe') AS probed,
    last_query.query, last_query.queries, keys.least_keys, keys.most_keys, reach.last_n
FROM studies
JOIN model_sizes USING (study)
CROSS JOIN last_query
CROSS JOIN keys
CROSS JOIN reach
WHERE studies.study = $study
