-- grain:   one row per (layer, label)
-- inputs:  head_taxonomy, kinds; $study, $query
-- meaning: how many heads of each layer are of each kind (Figure 8), kinds without a head included
--          share: of the heads of the layer
WITH labelled AS (
    SELECT layer, label
    FROM head_taxonomy
    WHERE study = $study AND query = $query
)
SELECT
    layer,
    kinds.label,
    count(*) FILTER (WHERE labelled.label = kinds.label) AS heads,
    heads / count(*) AS share
FROM labelled, kinds() AS kinds
GROUP BY layer, kinds.label, place
ORDER BY layer, place
