-- grain:   one row per (layer, kv_head) with a direction that is outside the unit ball, duplicated, or of no position
--          or head
-- inputs:  value_directions, principal_directions, studies
-- meaning: components along three principal directions are those of a unit vector, at most one for each position, and
--          exist only for KV heads that have such directions
WITH actual AS (
    SELECT
        layer,
        kv_head,
        count(*) AS rows,
        count(DISTINCT position) AS several,
        min(position) AS first_position,
        max(position) AS last_position,
        max(x::DOUBLE * x + y::DOUBLE * y + z::DOUBLE * z) AS largest_square
    FROM value_directions
    WHERE study = $study
    GROUP BY layer, kv_head
)
SELECT layer, kv_head, rows, several, first_position, last_position, largest_square, status
FROM actual
LEFT JOIN (SELECT * FROM principal_directions WHERE study = $study) AS principal USING (layer, kv_head)
WHERE
    several <> rows
    OR first_position < 0
    OR last_position >= (SELECT any_value(context_length) FROM studies WHERE study = $study)
    OR NOT coalesce(largest_square <= 1 + 1e-5, false)
    OR status IS DISTINCT FROM 'ok'
