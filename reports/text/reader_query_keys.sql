-- grain:   one row per (layer, head, sequence, query)
-- inputs:  query_keys; $study, $sequences, $places
-- meaning: the keys of largest weight of every query of the first $sequences sequences, as lists by rank, of the heads
--          LAYER.HEAD in $places, with commas
SELECT layer, head, sequence, query, position, weight
FROM query_keys
WHERE study = $study AND sequence < $sequences AND list_contains(string_split($places, ','), layer || '.' || head)
ORDER BY layer, head, sequence, query
