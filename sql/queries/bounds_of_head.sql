-- grain:   one row per (metric, family, n); metric is precision, recall, f_r_max or f_r_min
-- inputs:  bounds_comparison, coverage, by_metric, log_grid; $study, $query, $layer, $head
-- meaning: the same as bounds_by_n, for one head
WITH best AS (
    SELECT kappa
    FROM coverage
    WHERE study = $study AND query = $query AND shown
),
comparison AS (
    SELECT *
    FROM bounds_comparison
    WHERE
        study = $study
        AND query = $query
        AND layer = $layer
        AND head = $head
        AND (family = 'scale_free' OR kappa = (SELECT kappa FROM best))
)
SELECT *
FROM by_metric(comparison)
SEMI JOIN log_grid((SELECT max(n) FROM comparison)) AS grid ON n = point
ORDER BY metric, family, n
