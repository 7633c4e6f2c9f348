-- grain:   one row per study
-- inputs:  studies, model_sizes, attention_rows, head_pattern_means; $study
-- meaning: the settings of a study, with the positions of all queries and of the last, the smallest and largest number
--          of keys of its heads, and the largest N; last_n: NULL if no query attends to two keys; grid_asked: whether
--          its settings have a Monte Carlo grid; probed: whether it read repeated tokens, too
WITH keys_by_query AS (
    SELECT query, min(n_keys) AS least_keys, max(n_keys) AS most_keys
    FROM attention_rows
    WHERE study = $study
    GROUP BY query
),
asked AS (SELECT max(query) AS query, list(query ORDER BY query) AS queries FROM keys_by_query)
SELECT
    studies.*,
    model_sizes.* EXCLUDE study,
    studies.provenance ->> '$.summaries.bounds_in_expectation.settings.monte_carlo' IS NOT NULL AS grid_asked,
    EXISTS (FROM head_pattern_means WHERE study = $study AND text = 'probe') AS probed,
    asked.query, asked.queries, least_keys::BIGINT AS least_keys, most_keys::BIGINT AS most_keys,
    nullif(most_keys - 1, 0) AS last_n
FROM studies
JOIN model_sizes USING (study)
CROSS JOIN asked
LEFT JOIN keys_by_query USING (query)
WHERE studies.study = $study
