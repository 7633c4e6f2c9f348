-- grain:   one row per (metric, family, n); metric is precision, recall, f_r_max or f_r_min
-- inputs:  bounds_comparison_model, attention_rows, by_metric, log_grid; $study, $query, $kappa
-- meaning: the model's mean Precision, Recall and F with intervals and bounds (Figure 5 and Corollary 1); the printed
--          family at $kappa; n: at most 161 values, evenly spaced on a log axis; inside: whether the mean lies within
--          its bounds, NULL without bounds; precision_floor: N/n, below which Precision cannot lie, mean over heads and
--          sequences
WITH comparison AS (
    FROM bounds_comparison_model
    WHERE study = $study AND query = $query AND (family = 'scale_free' OR kappa = $kappa)
),
floors AS (
    SELECT point AS n, avg(point / n_keys) AS precision_floor
    FROM attention_rows
    JOIN log_grid((SELECT max(n) FROM comparison)) AS grid ON point < n_keys
    WHERE study = $study AND query = $query
    GROUP BY point
)
FROM by_metric(comparison)
JOIN floors USING (n)
ORDER BY metric, family, n
