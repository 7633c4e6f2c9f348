-- grain:   one row per (layer, label)
-- inputs:  head_taxonomy, kinds; $study, $query
-- meaning: number of heads of each kind in each layer (Figure 8), including kinds without heads; share: of the heads of
--          the layer
SELECT
    layer, kinds.label,
    count(*) FILTER (WHERE labelled.label = kinds.label) AS heads,
    heads / count(*) AS share
FROM head_taxonomy AS labelled
CROSS JOIN kinds() AS kinds
WHERE study = $study AND query = $query
GROUP BY layer, kinds.label, place
ORDER BY layer, place
