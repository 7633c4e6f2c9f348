-- grain:   one row per selection and kappa whose upper bounds no selection can have
-- inputs:  upper_bounds
-- meaning: 1 - 1 / (2 (n + 1)) <= precision_upper <= 1 and 1/2 <= recall_upper <= 1, because no probability of eq. 9
--          exceeds 1/2; both exist or neither does; kappa is positive; one scale in the whole study
SELECT sequence, query, layer, head, n, kappa, scale, precision_upper, recall_upper
FROM upper_bounds
WHERE
    study = $study
    AND (
        (precision_upper IS NULL) <> (recall_upper IS NULL)
        OR precision_upper > 1
        OR precision_upper < 1 - 1 / (2 * (n + 1)) - 1e-6
        OR recall_upper > 1
        OR recall_upper < 0.5 - 1e-6
        OR kappa <= 0
        OR scale NOT IN ('unit', 'raw')
        OR scale <> (SELECT any_value(scale) FROM upper_bounds WHERE study = $study)
    )
