-- grain:   one row per (layer, head)
-- inputs:  heads, head_taxonomy, elbows, selection_means, value_scales; $study, $query, $n
-- meaning: what a map of heads can be coloured by, mean over sequences
--          precision, recall: at N = $n; NULL for a head that attends to $n keys or fewer; rho_0: NULL if hidden or of norm 0
WITH labelled AS (
    SELECT layer, head, label, nearest, margin, agreement
    FROM head_taxonomy
    WHERE study = $study AND query = $query
),
of_elbows AS (
    SELECT layer, head, elbow_n
    FROM elbows
    WHERE study = $study AND query = $query
),
at_n AS (
    SELECT layer, head, precision, recall
    FROM selection_means
    WHERE study = $study AND query = $query AND n = $n
),
sinks AS (
    SELECT layer, kv_head, avg(rho_0::DOUBLE) AS rho_0
    FROM value_scales
    WHERE study = $study AND query = $query
    GROUP BY layer, kv_head
)
SELECT layer, head, kv_head, label, nearest, margin, agreement, elbow_n, precision, recall, rho_0
FROM heads
LEFT JOIN labelled USING (layer, head)
LEFT JOIN of_elbows USING (layer, head)
LEFT JOIN at_n USING (layer, head)
LEFT JOIN sinks USING (layer, kv_head)
WHERE study = $study
ORDER BY layer, head
