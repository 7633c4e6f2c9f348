-- grain:   one row per n that is a power of two above 1
-- inputs:  sink_effect, last_query; $study
-- meaning: Do heads whose values lie close to the sink's have higher Recall: the correlation over heads (Figure 6)?
FROM sink_effect
SELECT n, heads, correlation, correlation_low, correlation_high, correlation_low > 0 AS surely_positive
WHERE study = $study AND query = last_query($study) AND n > 1 AND n & (n - 1) = 0
ORDER BY n
