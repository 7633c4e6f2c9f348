-- grain:   one row per (layer, head, measure, null_model)
-- inputs:  separability; $study, $query, $n
-- meaning: the measures of separability of every head beside what chance would do, at the largest N of the log grid up to $n
SELECT layer, head, measure, null_model, n, sequences, draws, value, null_value, difference, low, high
FROM separability
WHERE
    study = $study
    AND query = $query
    AND n = (SELECT max(n) FROM separability WHERE study = $study AND query = $query AND n <= $n)
ORDER BY measure, null_model, layer, head
