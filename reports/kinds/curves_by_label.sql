-- grain:   one row per (label, metric, n); metric is precision or recall
-- inputs:  selection_means, head_taxonomy, kinds, log_grid; $study, $query
-- meaning: mean Precision and Recall over the heads of each kind (Figure 11), with 10 % and 90 % quantiles over them;
--          n: at most 161 values, evenly spaced on a log axis; heads: those of the kind that attend to more than n keys
WITH means AS (FROM selection_means WHERE study = $study AND query = $query),
of_heads AS (
    SELECT label, n, precision, recall
    FROM means
    SEMI JOIN log_grid((SELECT max(n) FROM means)) AS grid ON n = point
    JOIN head_taxonomy USING (study, query, layer, head)
),
by_metric AS (UNPIVOT of_heads ON precision, recall INTO NAME metric VALUE value)
SELECT
    label, metric, n,
    count(*) AS heads,
    avg(value) AS mean,
    quantile_cont(value, 0.1) AS p10,
    quantile_cont(value, 0.9) AS p90
FROM by_metric
JOIN kinds() USING (label)
GROUP BY label, place, metric, n
ORDER BY place, metric, n
