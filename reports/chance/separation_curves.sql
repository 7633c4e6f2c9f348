-- grain:   one row per (auc_rank, point)
-- inputs:  separation_curves; $study, $query
-- meaning: single selections over all radii, at the largest N that has curves: Recall, Precision and the share of the
--          keys left out that are within the radius
SELECT auc_rank, layer, head, sequence, n, n_keys, auc, point, radius, precision, recall, false_positive_share
FROM separation_curves
WHERE study = $study AND query = $query
QUALIFY n = max(n) OVER ()
ORDER BY list_position(['highest', 'median', 'lowest'], auc_rank), point
