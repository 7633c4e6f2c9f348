-- grain:   one row per point of a curve over radii with values that no curve has there
-- inputs:  separation_curves, heads
-- meaning: along a curve radius, Recall and the share of false positives grow from the first point, which is the
--          nearest key, to the last, where both shares are 1; Precision follows from them and n; a curve has one AUC,
--          and a rank belongs to one head (up to rounding)
WITH curves AS (
    SELECT
        *,
        lag(point) OVER along AS before,
        lag(radius) OVER along AS radius_before,
        lag(recall) OVER along AS recall_before,
        lag(false_positive_share) OVER along AS share_before,
        lead(point) OVER along AS after,
        n * recall AS selected,
        (n_keys - n) * false_positive_share AS left_out,
        auc <> first_value(auc) OVER along AS has_another_auc,
        min((layer, head)) OVER of_rank <> max((layer, head)) OVER of_rank AS has_several_heads
    FROM separation_curves
    WHERE study = $study
    WINDOW
        of_rank AS (PARTITION BY query, auc_rank),
        along AS (PARTITION BY query, auc_rank, sequence, n ORDER BY point)
)
SELECT query, layer, head, auc_rank, sequence, n, point, radius, precision, recall, false_positive_share, auc
FROM curves
LEFT JOIN (FROM heads WHERE study = $study) AS known USING (layer, head)
WHERE
    known.head IS NULL
    OR auc_rank NOT IN ('highest', 'median', 'lowest')
    OR NOT (n >= 1 AND n < n_keys AND n_keys <= query + 1)
    OR NOT (selected + left_out > 0 AND abs(precision - selected / (selected + left_out)) <= 1e-9)
    OR (before IS NULL AND point <> 0)
    OR NOT (before < point AND radius_before <= radius)
    OR NOT (recall_before <= recall AND share_before <= false_positive_share)
    OR NOT (recall_before + share_before < recall + false_positive_share)
    OR (after IS NULL AND NOT least(recall, false_positive_share) >= 1 - 1e-9)
    OR has_another_auc
    OR has_several_heads
