-- grain:   one row per (sequence, query, layer, kv_head) whose scale is missing, duplicated, or not a length
-- inputs:  value_scales, heads, attention_rows
-- meaning: every KV head has one scale of its values for each sequence and query, and a ρ_0 only if the sink is visible
SELECT
    sequence,
    query,
    layer,
    kv_head,
    count(value_scales.study) AS found,
    any_value(value_scale) AS value_scale
FROM (
    SELECT sequence, query, layer, kv_head, bool_or(sink_attended) AS sink_attended
    FROM attention_rows
    JOIN heads USING (study, layer, head)
    WHERE study = $study
    GROUP BY sequence, query, layer, kv_head
)
FULL JOIN (SELECT * FROM value_scales WHERE study = $study) AS value_scales USING (sequence, query, layer, kv_head)
GROUP BY sequence, query, layer, kv_head
HAVING
    count(value_scales.study) <> 1
    OR any_value(value_scale) < 0
    OR isinf(any_value(value_scale))
    OR (any_value(rho_0) IS NOT NULL AND NOT any_value(sink_attended))
