-- grain:   one row per (layer, head, sequence, query)
-- inputs:  query_heads; $study, $sequences, $places
-- meaning: the keys of largest weight of every query of the first $sequences sequences, as lists by rank, of the heads
--          LAYER.HEAD in $places, with commas
SELECT layer, head, sequence, query, top_positions AS position, top_weights AS weight
FROM query_heads
WHERE study = $study AND sequence < $sequences AND list_contains(string_split($places, ','), layer || '.' || head)
ORDER BY layer, head, sequence, query
