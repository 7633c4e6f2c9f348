-- grain:   one row per (metric, n); metric is precision, recall, f_r_min or f_r_max
-- inputs:  selection_means, attention_rows, log_grid; $study, $query
-- meaning: each head's mean over sequences, then mean and 10 % and 90 % quantiles over heads, by N (Figure 5 and F); n:
--          at most 161 values, evenly spaced on a log axis from 1 to the largest; heads: those that attend to more than
--          n keys; precision_floor: N/n, below which Precision cannot lie, mean over heads and sequences
WITH means AS (FROM selection_means WHERE study = $study AND query = $query),
by_head AS (
    SELECT layer, head, n, precision, recall, f_r_min, f_r_max
    FROM means
    SEMI JOIN log_grid((SELECT max(n) FROM means)) AS grid ON n = point
),
by_metric AS (UNPIVOT by_head ON precision, recall, f_r_min, f_r_max INTO NAME metric VALUE value),
floors AS (
    SELECT point AS n, avg(point / n_keys) AS precision_floor
    FROM attention_rows
    JOIN log_grid((SELECT max(n) FROM means)) AS grid ON point < n_keys
    WHERE study = $study AND query = $query
    GROUP BY point
)
SELECT
    metric, n,
    count(*) AS heads,
    avg(value) AS mean,
    quantile_cont(value, 0.1) AS p10,
    quantile_cont(value, 0.9) AS p90,
    any_value(precision_floor) AS precision_floor
FROM by_metric
JOIN floors USING (n)
GROUP BY metric, n
ORDER BY metric, n
