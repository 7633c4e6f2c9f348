-- grain:   one row per (layer, head)
-- inputs:  attention_rows; $study, $query
-- meaning: weight that each head's learned sink takes away from the keys, mean over sequences; 0 for a head without one
SELECT layer, head, avg(learned_sink::DOUBLE) AS mean_learned_sink
FROM attention_rows
WHERE study = $study AND query = $query
GROUP BY layer, head
ORDER BY layer, head
