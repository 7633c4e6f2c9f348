-- grain:   one row per (sequence, query, layer, head)
-- inputs:  top_keys; $study, $sequences
-- meaning: the keys of largest weight of every head in the first $sequences sequences, as lists by rank: position,
--          weight, contribution, distance from s_N over its norm, and as bits N - 1 for which N it is within r_min
SELECT
    sequence, query, layer, head,
    any_value(n) AS n,
    list(position ORDER BY rank) AS position,
    list(weight ORDER BY rank) AS weight,
    list(contribution ORDER BY rank) AS contribution,
    list(relative_distance ORDER BY rank) AS distance,
    list(within_r_min_at ORDER BY rank) AS within
FROM top_keys
WHERE study = $study AND sequence < $sequences
GROUP BY sequence, query, layer, head
ORDER BY sequence, query, layer, head
