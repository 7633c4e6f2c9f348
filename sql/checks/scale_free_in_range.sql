-- grain:   one row per selection whose scale-free lower bounds no selection can have
-- inputs:  selection_counts
-- meaning: 0 < precision_lower_scale_free <= 1 and 0 <= recall_lower_scale_free <= 1; both exist or neither does
SELECT sequence, query, layer, head, n, precision_lower_scale_free, recall_lower_scale_free
FROM selection_counts
WHERE
    study = $study
    AND (
        (precision_lower_scale_free IS NULL) <> (recall_lower_scale_free IS NULL)
        OR NOT (precision_lower_scale_free > 0 AND precision_lower_scale_free <= 1)
        OR NOT (recall_lower_scale_free >= 0 AND recall_lower_scale_free <= 1)
    )
