-- grain:   one row per (layer, head, null_model)
-- inputs:  separability; $study, $query, $measure, $n
-- meaning: a measure of separability of every head, such as 'auc', compared with chance, at the largest N of the log
--          grid up to $n
SELECT layer, head, measure, null_model, n, sequences, draws, value, null_value, difference, difference_low AS low, difference_high AS high
FROM separability
WHERE study = $study AND layer IS NOT NULL AND query = $query AND measure = $measure AND n <= $n
QUALIFY n = max(n) OVER ()
ORDER BY null_model, layer, head
