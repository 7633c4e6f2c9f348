-- grain:   one row per (layer, head)
-- inputs:  head_taxonomy; $study, $query
-- meaning: the kind of every head by the default thresholds, with the measures that decide it (Figure 8)
SELECT * EXCLUDE (study, query)
FROM head_taxonomy
WHERE study = $study AND query = $query
ORDER BY layer, head
