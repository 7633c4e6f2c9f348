-- grain:   one row per pair of layers, a layer with itself included
-- inputs:  selection_means, last_query; $study
-- meaning: Which layers' mean Recall rises and falls with N in the same way: the correlation between layers?
WITH curves AS (
    FROM selection_means
    SELECT layer, n, avg(recall) AS recall
    WHERE study = $study AND query = last_query($study)
    GROUP BY ALL
)
FROM curves AS one
JOIN curves AS other ON one.n = other.n AND one.layer <= other.layer
SELECT one.layer, other.layer AS other_layer, count(*) AS points, corr(one.recall, other.recall) AS correlation
GROUP BY ALL
ORDER BY ALL
