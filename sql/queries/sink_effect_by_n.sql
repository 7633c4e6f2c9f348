-- grain:   one row per n
-- inputs:  sink_effect, studies; $study, $query
-- meaning: how mean Recall R(r_min, N) and mean ρ_0 go together over heads, with intervals (Figure 6)
--          correlation: NULL where it has no meaning, as at N = 1, where Recall is 1 in all heads; kv_heads: how many
--          values of ρ_0 there are, which the query heads of one KV head share
SELECT
    n,
    sink_effect.heads,
    (sink_effect.heads * studies.kv_heads / studies.heads)::INTEGER AS kv_heads,
    sink_effect.sequences,
    correlation,
    correlation_ci_low,
    correlation_ci_high
FROM sink_effect
JOIN studies USING (study)
WHERE study = $study AND query = $query
ORDER BY n
