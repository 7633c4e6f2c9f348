-- grain:   one row per (query, position)
-- inputs:  attention_by_position, role_of; $study, $layer, $head
-- meaning: contributions of positions to the head's output, and the cosines of their value states with those of the
--          last token and of the sink, at every query (Figure 10); role: 'sink', 'last' (the query's own position) or
--          'other'; of the others, the 100 largest contributions and at most 100 evenly spaced positions
SELECT query, position, role_of(position, query) AS role, mean_norm_y, mean_cos_last, mean_cos_sink
FROM attention_by_position
WHERE study = $study AND layer = $layer AND head = $head
WINDOW
    alike AS (PARTITION BY query, role_of(position, query)),
    by_size AS (PARTITION BY query, role_of(position, query) ORDER BY mean_norm_y DESC, position),
    by_place AS (PARTITION BY query, role_of(position, query) ORDER BY position)
QUALIFY
    row_number() OVER by_size <= 100
    OR (row_number() OVER by_place - 1) % ceil(count(*) OVER alike / 100) = 0
ORDER BY query, position
