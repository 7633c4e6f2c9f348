-- grain:   one row per (layer, head)
-- inputs:  heads, attention_rows, value_scales, head_taxonomy, selection; $study, $query, $n
-- meaning: every head on one text: its kind, its metrics at one N (NULL for a head that attends to n keys or fewer),
--          the sink's weight and cosine, and how many keys its weights are spread over
SELECT
    layer, head, kv_head, label, nearest, attention_rows.n_keys, precision, recall, specificity, sink_weight,
    rho_0, effective_keys, n_50, n_90, n_99, top_weight, top_position, top_role
FROM heads
JOIN attention_rows USING (study, layer, head)
JOIN value_scales USING (study, query, layer, kv_head)
JOIN head_taxonomy USING (study, query, layer, head)
LEFT JOIN (FROM selection WHERE n = $n) AS selected USING (study, query, layer, head)
WHERE study = $study AND query = $query
ORDER BY layer, head
