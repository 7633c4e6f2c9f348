-- grain:   one row per (layer, head)
-- inputs:  heads, selection_means; $study, $query, $n
-- meaning: Precision and Recall of every head at one N, mean over sequences; NULL for a head that attends to n keys or
--          fewer
SELECT layer, head, coalesce(sequences, 0) AS sequences, precision, recall
FROM heads
LEFT JOIN (FROM selection_means WHERE query = $query AND n = $n) AS at_n USING (study, layer, head)
WHERE study = $study
ORDER BY layer, head
