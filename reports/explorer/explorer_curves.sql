-- grain:   one row per (layer, head)
-- inputs:  selection_means, selection_counts, attention_rows, bound_means, log_grid; $study, $query, $kappa
-- meaning: the curves of every head over n as lists of equal length, mean over sequences; printed bounds at $kappa; n:
--          at most 24 values, evenly spaced on a log axis, up to the number of keys of the head; NULL if there is no
--          bound or no cosine; precision_floor: N/n, below which Precision cannot lie
WITH grid AS (
    FROM log_grid((SELECT max(n) FROM selection_means WHERE study = $study AND query = $query), points := 24)
),
keys AS (
    SELECT layer, head, avg(1 / n_keys) AS floor_of_one
    FROM attention_rows
    WHERE study = $study AND query = $query
    GROUP BY layer, head
),
means AS (
    SELECT
        layer, head, n, precision, n * floor_of_one AS precision_floor, recall,
        norm_s, norm_s_without_sink, norm_s_without_last, cos_sink, cos_last
    FROM selection_means
    LEFT JOIN keys USING (layer, head)
    SEMI JOIN grid ON n = point
    WHERE study = $study AND query = $query
),
printed AS (
    SELECT layer, head, n, precision_lower, precision_upper, recall_lower, recall_upper
    FROM bound_means
    SEMI JOIN grid ON n = point
    WHERE study = $study AND query = $query AND family = 'printed' AND kappa = $kappa
),
scale_free AS (
    SELECT layer, head, n, precision_lower AS precision_scale_free, recall_lower AS recall_scale_free
    FROM bound_means
    SEMI JOIN grid ON n = point
    WHERE study = $study AND query = $query AND family = 'scale_free'
),
errors AS (
    SELECT
        layer, head, n,
        avg(error_renormalised::DOUBLE) AS error_renormalised,
        avg(error_mean::DOUBLE) AS error_mean,
        avg(weight_left_out::DOUBLE) AS weight_left_out
    FROM selection_counts
    SEMI JOIN grid ON n = point
    WHERE study = $study AND query = $query
    GROUP BY layer, head, n
)
SELECT layer, head, list(COLUMNS(* EXCLUDE (layer, head)) ORDER BY n)
FROM means
LEFT JOIN printed USING (layer, head, n)
LEFT JOIN scale_free USING (layer, head, n)
LEFT JOIN errors USING (layer, head, n)
GROUP BY layer, head
ORDER BY layer, head
