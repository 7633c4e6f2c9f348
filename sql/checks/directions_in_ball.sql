-- grain:   one row per direction that is outside the unit ball, or of no position or head
-- inputs:  values_by_position, principal_directions, studies
-- meaning: components along three principal directions are those of a unit vector, and exist only for KV heads that have
--          such directions
SELECT layer, kv_head, position, x, y, z, principal.status
FROM values_by_position
JOIN studies USING (study)
LEFT JOIN principal_directions AS principal USING (study, layer, kv_head)
WHERE
    study = $study
    AND x IS NOT NULL
    AND (
        NOT position BETWEEN 0 AND context_length - 1
        OR NOT x::DOUBLE * x + y::DOUBLE * y + z::DOUBLE * z <= 1 + 1e-5
        OR principal.status IS DISTINCT FROM 'ok'
    )
