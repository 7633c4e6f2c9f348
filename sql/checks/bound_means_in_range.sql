-- grain:   one row per mean of bounds with values that no bounds can have
-- inputs:  bound_means
-- meaning: 0 < precision_lower <= 1, 0 <= recall_lower <= 1, and likewise for F; upper bounds lie between 0 and 1;
--          printed bounds exist exactly if there is a margin; the premise's share lies between 0 and 1 (each up to
--          rounding)
SELECT query, layer, head, n, family, kappa, premise_share, margin, precision_lower, recall_lower
FROM bound_means
WHERE
    study = $study
    AND (
        NOT (precision_lower > 0 AND f_r_max_lower > 0 AND recall_lower >= 0 AND f_r_min_lower >= 0)
        OR (precision_lower IS NULL) <> (recall_lower IS NULL)
        OR (family = 'printed' AND (margin IS NULL) <> (precision_lower IS NULL))
        OR family NOT IN ('printed', 'scale_free')
        OR (family = 'printed') <> (kappa IS NOT NULL)
        OR (family = 'printed') <> (scale IS NOT NULL)
    )
