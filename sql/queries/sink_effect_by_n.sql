-- grain:   one row per n
-- inputs:  sink_effect; $study, $query
-- meaning: how mean Recall R(r_min, N) and mean ρ_0 go together over heads, with intervals (Figure 6)
--          correlation: NULL where it has no meaning, as at N = 1, where Recall is 1 in all heads
SELECT n, heads, sequences, correlation, correlation_ci_low, correlation_ci_high
FROM sink_effect
WHERE study = $study AND query = $query
ORDER BY n
