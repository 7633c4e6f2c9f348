-- grain:   one row per (layer, head)
-- inputs:  heads, head_measures; $study, $measure
-- meaning: one measure of every head; NULL if it does not exist
WITH measured AS (
    SELECT layer, head, measure, value, low, high
    FROM head_measures
    WHERE study = $study AND measure = $measure
)
SELECT layer, head, kv_head, measure, value, low, high
FROM heads
LEFT JOIN measured USING (layer, head)
WHERE study = $study
ORDER BY layer, head
