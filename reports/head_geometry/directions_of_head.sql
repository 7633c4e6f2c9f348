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
)
SELECT position, x, y, z, mean_weight, role, selected_rank
FROM points
LEFT JOIN weights USING (position)
WINDOW
    alike AS (PARTITION BY role),
    by_weight AS (PARTITION BY role ORDER BY selected_rank NULLS LAST, position),
    by_place AS (PARTITION BY role ORDER BY position)
QUALIFY
    row_number() OVER by_weight <= 100
    OR (row_number() OVER by_place - 1) % ceil(count(*) OVER alike / 198) = 0
ORDER BY position
