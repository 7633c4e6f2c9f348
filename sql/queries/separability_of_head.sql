-- grain:   one row per (measure, null_model, n)
-- inputs:  separability; $study, $query, $layer, $head
-- meaning: as separability_by_n, for one head
SELECT measure, null_model, n, sequences, draws, value, null_value, difference, low, high
FROM separability
WHERE study = $study AND query = $query AND layer = $layer AND head = $head
ORDER BY measure, null_model, n
