-- grain:   one row per (layer, head) of head_plane
-- inputs:  head_plane, head_taxonomy, kinds_moved, head_labels, head_pattern_means, head_ablation; $study, $query
-- meaning: every head as a point of the plane of its curves, with what can colour it; kept: whether no threshold of the
--          taxonomy, halved, doubled or changed by 10 %, gives it another kind; reached: the kinds that it has under any of
--          these; patterns: what it is known to look at, by falling lift, NULL if that was not measured; delta_loss:
--          increase of the loss without the head, NULL if that was not measured
WITH moved AS (
    SELECT layer, head, list(DISTINCT label ORDER BY label) AS reached
    FROM (
        SELECT layer, head, label
        FROM kinds_moved
        WHERE study = $study AND query = $query
        UNION ALL
        SELECT layer, head, label
        FROM head_taxonomy
        WHERE study = $study AND query = $query
    )
    GROUP BY layer, head
),
looked AS (
    SELECT layer, head, list(label ORDER BY lift DESC NULLS LAST, label) AS patterns
    FROM head_labels
    WHERE study = $study
    GROUP BY layer, head
)
SELECT
    layer, head, x, y, label, nearest,
    len(reached) = 1 AS kept,
    reached,
    CASE WHEN EXISTS (FROM head_pattern_means WHERE study = $study) THEN coalesce(patterns, []) END AS patterns,
    delta_loss
FROM head_plane
JOIN head_taxonomy USING (study, layer, head)
LEFT JOIN moved USING (layer, head)
LEFT JOIN looked USING (layer, head)
LEFT JOIN (FROM head_ablation WHERE study = $study AND kind = 'zero') AS ablated USING (layer, head)
WHERE head_plane.study = $study AND query = $query
ORDER BY layer, head
