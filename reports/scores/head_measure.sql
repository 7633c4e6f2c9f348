-- grain:   one row per (layer, head)
-- inputs:  heads, head_measures; $study, $measure
-- meaning: one measure of every head; NULL if it does not exist
SELECT layer, head, heads.kv_head, measure, value, low, high
FROM heads
LEFT JOIN (FROM head_measures WHERE measure = $measure) AS measured USING (study, layer, head)
WHERE study = $study
ORDER BY layer, head
