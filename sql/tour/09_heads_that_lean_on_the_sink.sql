-- grain:   one row per (layer, head), of the ten with the heaviest sink
-- inputs:  attention_by_position, concentration_means, last_query; $study
-- meaning: Which heads give the sink the most weight, how many times the uniform share is that (Figure 4), and what is
--          their effective number of keys?
FROM attention_by_position
JOIN concentration_means USING (study, query, layer, head)
SELECT
    layer, head,
    any_value(mean_weight) FILTER (WHERE position = 0) AS sink_weight,
    sink_weight * count(*) AS times_uniform,
    any_value(effective_keys) AS effective_keys
WHERE study = $study AND query = last_query($study)
GROUP BY layer, head
ORDER BY sink_weight DESC NULLS LAST, layer, head
LIMIT 10
