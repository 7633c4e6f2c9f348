-- grain:   one row per (layer, head)
-- inputs:  heads, selection; $study, $query, $n
-- meaning: Precision and Recall of every head at one N, mean over sequences; NULL for a head that attends to n keys or
--          fewer
WITH at_n AS (
    SELECT layer, head, count(*) AS sequences, avg(precision) AS precision, avg(recall) AS recall
    FROM selection
    WHERE study = $study AND query = $query AND n = $n
    GROUP BY layer, head
)
SELECT layer, head, coalesce(sequences, 0) AS sequences, precision, recall
FROM heads
LEFT JOIN at_n USING (layer, head)
WHERE study = $study
ORDER BY layer, head
