-- grain:   one row per (layer, head, measure)
-- inputs:  head_measures; $study
-- meaning: every measure of every head
SELECT study, layer, head, kv_head, measure, value, low, high
FROM head_measures
WHERE study = $study
ORDER BY measure, layer, head
