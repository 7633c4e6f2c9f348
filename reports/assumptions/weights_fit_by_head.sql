-- grain:   one row per (layer, head)
-- inputs:  assumption_weights; $study, $query
-- meaning: Assumption 3 for each head: the fit of the four phases to its mean weight by position
SELECT * EXCLUDE (study, query, heads)
FROM assumption_weights
WHERE study = $study AND query = $query AND layer IS NOT NULL
ORDER BY layer, head
