-- grain:   one row per (layer, head, sequence, query)
-- inputs:  query_heads; $study, $sequences, $places
-- meaning: what every query of the first $sequences sequences selects, of the heads LAYER.HEAD in $places, with commas
SELECT layer, head, sequence, query, recall_level, specificity_level, effective_keys, sink_weight, error_renormalised_16
FROM query_heads
WHERE study = $study AND sequence < $sequences AND list_contains(string_split($places, ','), layer || '.' || head)
ORDER BY layer, head, sequence, query
