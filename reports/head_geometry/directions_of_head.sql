-- grain:   one row per position
-- inputs:  values_by_position, heads, attention_by_position, role_of; $study, $query, $layer, $head
-- meaning: directions of the value states up to the query as points of the unit ball, with the head's mean weight of
--          each (Figure 9); role: 'sink', 'last' (the query's own position) or 'other'; mean_weight, selected_rank:
--          NULL if a window hides the position; selected_rank: rank by weight; of the others, the 100 heaviest and at
--          most 198 evenly spaced positions
WITH points AS (
    SELECT position, x, y, z, role_of(position, $query) AS role
    FROM values_by_position
    JOIN (SELECT * FROM heads WHERE head = $head) AS chosen USING (study, layer, kv_head)
    WHERE study = $study AND layer = $layer AND position <= $query AND x IS NOT NULL
),
weights AS (
    SELECT position, mean_weight, row_number() OVER (ORDER BY mean_weight DESC, position) AS selected_rank
    FROM attention_by_position
    WHERE study = $study AND query = $query AND layer = $layer AND head = $head
),
placed AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY role ORDER BY selected_rank NULLS LAST, position) AS by_weight,
        row_number() OVER (PARTITION BY role ORDER BY position) AS place,
        count(*) OVER (PARTITION BY role) AS places
    FROM points
    LEFT JOIN weights USING (position)
)
SELECT position, x, y, z, mean_weight, role, selected_rank
FROM placed
WHERE by_weight <= 100 OR (place - 1) % ceil(places / 198) = 0
ORDER BY position
