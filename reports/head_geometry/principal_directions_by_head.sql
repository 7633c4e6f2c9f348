-- grain:   one row per (layer, kv_head)
-- inputs:  principal_directions, heads; $study
-- meaning: how many of the head_dim directions the value states of each KV head use (Figure 9)
SELECT layer, kv_head, status, share_1, share_2, share_3, effective_dimension, head_dim
FROM principal_directions
JOIN (SELECT DISTINCT study, layer, kv_head, head_dim FROM heads) USING (study, layer, kv_head)
WHERE study = $study
ORDER BY layer, kv_head
