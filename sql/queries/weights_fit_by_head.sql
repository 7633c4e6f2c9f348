-- grain:   one row per (layer, head)
-- inputs:  assumption_weights; $study, $query
-- meaning: Assumption 3 for each head: the variant of the four phases that the criterion prefers, its parameters with
--          standard errors, and how well it fits the logarithm of mean weight (Figure 4)
SELECT * EXCLUDE (study, query)
FROM assumption_weights
WHERE study = $study AND query = $query
ORDER BY layer, head
