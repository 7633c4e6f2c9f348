-- grain:   one row per (layer, head)
-- inputs:  heads, head_taxonomy, selection_means, value_scales; $study, $query, $n
-- meaning: Recall of every head at one N and the similarity of its sink, means over sequences; recall: NULL for a head
--          that attends to n keys or fewer; rho_0: NULL if the sink is hidden or of norm 0
WITH sinks AS (
    SELECT layer, kv_head, avg(rho_0::DOUBLE) AS rho_0
    FROM value_scales
    WHERE study = $study AND query = $query
    GROUP BY layer, kv_head
)
SELECT layer, head, label, nearest, recall, rho_0
FROM heads
LEFT JOIN (FROM head_taxonomy WHERE query = $query) AS labelled USING (study, layer, head)
LEFT JOIN (FROM selection_means WHERE query = $query AND n = $n) AS at_n USING (study, layer, head)
LEFT JOIN sinks USING (layer, kv_head)
WHERE study = $study
ORDER BY layer, head
