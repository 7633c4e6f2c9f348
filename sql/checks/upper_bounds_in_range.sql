-- grain:   one row per selection and kappa with upper bounds that no selection can have
-- inputs:  upper_bounds
-- meaning: both bounds lie in their declared domains, since no probability of eq. 9 exceeds 1/2; both exist or neither
--          does; kappa is positive and finite; the whole study has one scale
SELECT sequence, query, layer, head, n, kappa, scale, precision_upper, recall_upper
FROM upper_bounds
WHERE
    study = $study
    AND (
        (precision_upper IS NULL) <> (recall_upper IS NULL)
        OR kappa <= 0
        OR kappa >= 'inf'
        OR {{ violations(by_kappa) }}
    )
UNION ALL
SELECT sequence, query, layer, head, n, kappa, scale, precision_upper, recall_upper
FROM upper_bounds
WHERE study = $study AND scale <> 'unit' AND EXISTS (FROM upper_bounds WHERE study = $study AND scale <> 'raw')
