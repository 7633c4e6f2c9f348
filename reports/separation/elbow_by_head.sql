-- grain:   one row per (layer, head)
-- inputs:  heads, elbows; $study, $query
-- meaning: the N of strongest non-trivial separation of every head, and the N at which it is weakest; NULL
--          for a head that attends to one key only
SELECT layer, head, status, elbow_n, harmonic_mean, lowest_n, lowest_harmonic_mean
FROM heads
LEFT JOIN (FROM elbows WHERE query = $query) AS elbows USING (study, layer, head)
WHERE study = $study
ORDER BY layer, head
