-- grain:   one row per mean of Precision, Recall or F that no selection can have, or without an interval around it
-- inputs:  selection_means, selection_means_model
-- meaning: 0 < precision <= 1, 0 <= recall <= 1, and so for F; the ends of an interval are in order, between 0 and 1, and
--          exist exactly if there are several sequences; layer and head are NULL for the model (up to rounding)
SELECT query, layer, head, n, sequences, precision, recall, f_r_max, f_r_min
FROM (FROM selection_means UNION ALL BY NAME FROM selection_means_model)
WHERE
    study = $study
    AND (
        NOT (precision > 0 AND f_r_max > 0 AND recall >= -1e-6 AND f_r_min >= -1e-6)
        OR greatest(precision, recall, f_r_max, f_r_min) > 1 + 1e-6
        OR least(precision_ci_low, recall_ci_low, f_r_max_ci_low, f_r_min_ci_low) < -1e-6
        OR greatest(precision_ci_high, recall_ci_high, f_r_max_ci_high, f_r_min_ci_high) > 1 + 1e-6
        OR precision_ci_low > precision_ci_high
        OR recall_ci_low > recall_ci_high
        OR f_r_max_ci_low > f_r_max_ci_high
        OR f_r_min_ci_low > f_r_min_ci_high
        OR list_unique([precision_ci_low IS NULL, precision_ci_high IS NULL, recall_ci_low IS NULL,
            recall_ci_high IS NULL, f_r_max_ci_low IS NULL, f_r_max_ci_high IS NULL, f_r_min_ci_low IS NULL,
            f_r_min_ci_high IS NULL, sequences = 1]) > 1
    )
