-- grain:   one row per (query, metric, n); metric is precision or recall
-- inputs:  selection_means_model, attention_rows; $study
-- meaning: mean Precision and Recall of the model at each context size, for n = 1, 2, 4, 8, … up to the number of keys
--          of the query; n_keys: largest number of keys of a head; heads: those that attend to more than n keys
WITH keys AS (
    SELECT query, max(n_keys) AS n_keys
    FROM attention_rows
    WHERE study = $study
    GROUP BY query
),
means AS (
    SELECT query, n, heads, precision, recall
    FROM selection_means_model
    WHERE study = $study AND n & (n - 1) = 0
),
by_metric AS (
    UNPIVOT means ON precision, recall INTO NAME metric VALUE mean
)
SELECT query, n_keys, metric, n, heads, mean
FROM by_metric
JOIN keys USING (query)
ORDER BY query, metric, n
