-- grain:   one row per n of the log grid
-- inputs:  sink_effect; $study, $query
-- meaning: correlation of mean Recall R(r_min, N) and mean ρ_0 over all heads, with intervals (Figure 6); correlation:
--          NULL if it is undefined, as at N = 1, where Recall is 1 in all heads
SELECT n, heads, sequences, correlation, correlation_low, correlation_high
FROM sink_effect
WHERE study = $study AND query = $query
ORDER BY n
