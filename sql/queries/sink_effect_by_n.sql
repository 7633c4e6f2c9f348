-- grain:   one row per n
-- inputs:  sink_effect, model_sizes; $study, $query
-- meaning: correlation of mean Recall R(r_min, N) and mean ρ_0 over heads, with intervals (Figure 6); correlation: NULL
--          if it is undefined, as at N = 1, where Recall is 1 in all heads; kv_heads: number of distinct values of ρ_0,
--          which the query heads of one KV head share, from their share in the whole model
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
