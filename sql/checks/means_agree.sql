-- grain:   one row per (relation, query, layer, head, n) whose means are not those of the selections, or of the heads
-- inputs:  selection_means, selection_means_model, distance_means_model, selection, attention_rows, random_subset_distance
-- meaning: at every power of two, means of Recall are the means over sequences of the selections, and the model's Recall
--          and distances are the means over heads of each sequence, then over sequences (up to rounding); layer and head
--          are NULL for the model
WITH selections AS (
    SELECT
        sequence,
        query,
        layer,
        head,
        n,
        recall,
        distance_rest::DOUBLE / nullif(norm_output, 0) AS distance,
        random_subset_distance(norm_output, norm_contributions, n, n_keys) / nullif(norm_output, 0) AS random_distance
    FROM selection
    JOIN (SELECT sequence, query, layer, head, norm_output, norm_contributions FROM attention_rows WHERE study = $study)
        USING (sequence, query, layer, head)
    WHERE study = $study AND n & (n - 1) = 0
),
of_heads AS (
    SELECT query, layer, head, n, avg(recall) AS recall
    FROM selections
    GROUP BY query, layer, head, n
),
of_sequences AS (
    SELECT query, n, avg(recall) AS recall, avg(distance) AS distance, avg(random_distance) AS random_distance
    FROM selections
    GROUP BY sequence, query, n
),
of_model AS (
    SELECT query, n, avg(recall) AS recall, avg(distance) AS distance, avg(random_distance) AS random_distance
    FROM of_sequences
    GROUP BY query, n
)
SELECT 'selection_means' AS relation, query, layer, head, n, means.recall AS actual, of_heads.recall AS expected
FROM of_heads
LEFT JOIN (SELECT query, layer, head, n, recall FROM selection_means WHERE study = $study) AS means
    USING (query, layer, head, n)
WHERE NOT coalesce(abs(means.recall - of_heads.recall) <= 1e-6, false)
UNION ALL
SELECT 'selection_means_model', query, NULL, NULL, n, model.recall, of_model.recall
FROM of_model
LEFT JOIN (SELECT query, n, recall FROM selection_means_model WHERE study = $study) AS model USING (query, n)
WHERE NOT coalesce(abs(model.recall - of_model.recall) <= 1e-6, false)
UNION ALL
SELECT 'distance_means_model', query, NULL, NULL, n, relative_distance, distance
FROM of_model
LEFT JOIN (SELECT * FROM distance_means_model WHERE study = $study) AS model USING (query, n)
WHERE
    NOT coalesce(abs(relative_distance - distance) <= 1e-6 * distance + 1e-30, distance IS NULL)
    OR NOT coalesce(abs(relative_random_distance - random_distance) <= 1e-5 * random_distance + 1e-6, distance IS NULL)
