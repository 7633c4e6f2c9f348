-- grain:   one row per (layer, head)
-- inputs:  heads, attention_by_position, values_by_position; $study, $query
-- meaning: weight that each head gives to the sink, with the uniform share and the norms of value states; sink_weight:
--          mean over sequences, NULL if a window hides the sink; norms: means over sequences, in model units;
--          median_norm is the median over positions after the sink
WITH weights AS (
    SELECT
        layer, head,
        1 / count(*) AS uniform_weight,
        any_value(mean_weight) FILTER (WHERE position = 0) AS sink_weight
    FROM attention_by_position
    WHERE study = $study AND query = $query
    GROUP BY layer, head
),
norms AS (
    SELECT
        layer, kv_head,
        any_value(mean_norm) FILTER (WHERE position = 0) AS sink_norm,
        median(mean_norm) FILTER (WHERE position > 0) AS median_norm
    FROM values_by_position
    WHERE study = $study
    GROUP BY layer, kv_head
)
SELECT
    layer, head, kv_head, sink_weight, uniform_weight, sink_norm, median_norm,
    sink_norm / nullif(median_norm, 0) AS norm_ratio
FROM heads
LEFT JOIN weights USING (layer, head)
LEFT JOIN norms USING (layer, kv_head)
WHERE study = $study
ORDER BY layer, head
