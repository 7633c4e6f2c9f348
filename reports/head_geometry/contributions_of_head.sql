-- grain:   one row per (query, position)
-- inputs:  attention_by_position, role_of; $study, $layer, $head
-- meaning: contributions of positions to the head's output, and the cosines of their value states with those of the
--          last token and of the sink, at every query (Figure 10); role: 'sink', 'last' (the query's own position) or
--          'other'; of the others, the 100 largest contributions and at most 100 evenly spaced positions
WITH of_head AS (
    SELECT *, role_of(position, query) AS role
    FROM attention_by_position
    WHERE study = $study AND layer = $layer AND head = $head
),
placed AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY query, role ORDER BY mean_norm_y DESC, position) AS by_size,
        row_number() OVER (PARTITION BY query, role ORDER BY position) AS place,
        count(*) OVER (PARTITION BY query, role) AS places
    FROM of_head
)
SELECT query, position, role, mean_norm_y, mean_cos_last, mean_cos_sink
FROM placed
WHERE by_size <= 100 OR (place - 1) % ceil(places / 100) = 0
ORDER BY query, position
