-- grain:   one row per (query, metric, n); metric is precision, recall or specificity
-- inputs:  selection_means_model, keys_of_queries; $study
-- meaning: mean Precision, Recall and specificity of the model at each context size, with their intervals over
--          sequences, for n = 1, 2, 4, 8, … up to the number of keys of the query; n_keys: largest number of keys of a
--          head; heads: those that attend to more than n keys
WITH by_metric AS (
    FROM selection_means_model
    UNPIVOT INCLUDE NULLS (
        (mean, low, high) FOR metric IN (
{% for metric in ("precision", "recall", "specificity") %}
            ({{ metric }}, {{ metric }}_low, {{ metric }}_high) AS '{{ metric }}'{{ "," if not loop.last }}
{% endfor %}
        )
    )
)
SELECT query, n_keys, metric, n, heads, mean, low, high
FROM by_metric
JOIN keys_of_queries($study) USING (query)
WHERE study = $study AND n & (n - 1) = 0
ORDER BY query, metric, n
