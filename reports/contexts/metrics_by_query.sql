-- grain:   one row per (query, metric, n); metric is precision, recall or specificity
-- inputs:  selection_means_model, keys_of_queries; $study
-- meaning: mean Precision, Recall and specificity of the model at each context size, with their intervals over
--          sequences, for n = 1, 2, 4, 8, … up to the number of keys of the query; n_keys: largest number of keys of a
--          head; heads: those that attend to more than n keys
WITH means AS (
    SELECT query, n, heads, COLUMNS('^(precision|recall|specificity)(_low|_high)?$')
    FROM selection_means_model
    WHERE study = $study AND n & (n - 1) = 0
),
by_metric AS (
    FROM means
    UNPIVOT INCLUDE NULLS (
        (mean, low, high) FOR metric IN (
            (precision, precision_low, precision_high) AS 'precision',
            (recall, recall_low, recall_high) AS 'recall',
            (specificity, specificity_low, specificity_high) AS 'specificity'
        )
    )
)
SELECT query, n_keys, metric, n, heads, mean, low, high
FROM by_metric
JOIN keys_of_queries($study) USING (query)
ORDER BY query, metric, n
