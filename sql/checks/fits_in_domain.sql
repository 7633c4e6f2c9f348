-- grain:   one row per fit on two logarithmic axes with values that no points can give
-- inputs:  distance_fits, distance_fits_model, convergence_fits, convergence_fits_model
-- meaning: a slope exists exactly if status is 'ok', and lies within its interval, which requires an error and so two
--          clusters; no error is negative, r2 is at most 1; a fit against n has a query, one against n_keys has an n;
--          layer and head are NULL for the model
WITH fits AS (
    FROM distance_fits UNION ALL BY NAME FROM distance_fits_model
    UNION ALL BY NAME
    SELECT *, 'n_keys' AS axis, 0 AS n
    FROM convergence_fits
    UNION ALL BY NAME
    SELECT *, 'n_keys' AS axis, 0 AS n
    FROM convergence_fits_model
)
SELECT measure, axis, query, n, layer, head, status, slope, slope_se, slope_low, slope_high, r2, points, clusters
FROM fits
WHERE
    study = $study
    AND (
        status NOT IN ('ok', 'too_few', 'one_x')
        OR (slope IS NULL) <> (status <> 'ok')
        OR (intercept IS NULL) <> (status <> 'ok')
        OR NOT isfinite(coalesce(slope, 0) + coalesce(intercept, 0))
        OR least(slope_se, intercept_se, points, left_out, clusters) < 0
        OR (slope_se IS NOT NULL AND clusters < 2)
        OR (slope_low IS NULL) <> (slope_se IS NULL)
        OR (slope_high IS NULL) <> (slope_se IS NULL)
        OR NOT coalesce(slope BETWEEN slope_low AND slope_high, true)
        OR r2 > 1 + 1e-9
        OR (status = 'ok' AND points < 2)
        OR clusters > points
        OR measure NOT IN ('distance', 'random_distance', 'effective_share', 'n_90_share', 'largest_deviation')
        OR axis NOT IN ('n', 'n_keys')
        OR (axis = 'n') <> (query IS NOT NULL)
        OR (axis = 'n_keys') <> (n IS NOT NULL)
    )
