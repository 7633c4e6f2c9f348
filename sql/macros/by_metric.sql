-- grain:   one row per (metric, row of the comparison); metric is precision, recall, f_r_max or f_r_min
-- inputs:  a relation with the columns that bounds_comparison and bounds_comparison_model share
-- meaning: each metric's mean, interval and bounds as rows, for charts
CREATE MACRO by_metric(comparison) AS TABLE
SELECT
    metric, n, family, kappa, scale, sequences, premise_share, margin, mean, low, high, lower, upper, inside
FROM query_table(comparison)
UNPIVOT INCLUDE NULLS (
    (mean, low, high, lower, upper, inside) FOR metric IN (
        (precision, precision_low, precision_high, precision_lower, precision_upper, precision_inside)
            AS 'precision',
        (recall, recall_low, recall_high, recall_lower, recall_upper, recall_inside) AS 'recall',
        (f_r_max, f_r_max_low, f_r_max_high, f_r_max_lower, f_r_max_upper, f_r_max_inside) AS 'f_r_max',
        (f_r_min, f_r_min_low, f_r_min_high, f_r_min_lower, f_r_min_upper, f_r_min_inside) AS 'f_r_min'
    )
)
