-- grain:   one row per n
-- inputs:  sink_effect, model_sizes; $study, $query
-- meaning: how mean Recall R(r_min, N) and mean ρ_0 go together over heads, with intervals (Figure 6)
--          correlation: NULL where it has no meaning, as at N = 1, where Recall is 1 in all heads; kv_heads: how many
--          values of ρ_0 there are, which the query heads of one KV head share, by their share in the whole model
SELECT
    n,
    sink_effect.heads,
    (sink_effect.heads * all_kv_heads / all_heads)::INTEGER AS kv_heads,
    sink_effect.sequences,
    correlation,
    correlation_ci_low,
    correlation_ci_high
FROM sink_effect
JOIN model_sizes USING (study)
WHERE study = $study AND query = $query
ORDER BY n
