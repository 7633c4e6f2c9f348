-- grain:   one row per (sequence, layer, head)
-- inputs:  heads, head_levels, sink_similarity, last_query; $study
-- meaning: Recall and specificity of every head at the last query, mean over ln N, and ρ_0 of its KV head, sequence by
--          sequence
SELECT sequence, layer, head, recall AS recall_last_query, specificity AS specificity_last_query, rho_0::DOUBLE AS rho_0
FROM heads
JOIN (FROM head_levels WHERE query = last_query($study)) AS levels USING (study, layer, head)
LEFT JOIN sink_similarity USING (study, sequence, layer, kv_head)
WHERE study = $study
ORDER BY sequence, layer, head
