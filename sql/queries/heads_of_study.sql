-- grain:   one row per (layer, head)
-- inputs:  heads; $study
-- meaning: the query heads of a study, and the KV heads whose value states they read
SELECT layer, head, kv_head
FROM heads
WHERE study = $study
ORDER BY layer, head
