-- grain:   one row per (layer, kv_head)
-- inputs:  heads, assumption_norms; $study
-- meaning: Which query heads read the same value states, and how long are these: C, and λ of the sink (Figure 2)?
FROM heads
JOIN assumption_norms USING (study, layer, kv_head)
SELECT layer, kv_head, list(head ORDER BY head) AS heads, any_value(c) AS c, any_value(lambda_sink) AS lambda_sink
WHERE study = $study
GROUP BY ALL
ORDER BY ALL
