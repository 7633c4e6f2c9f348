-- inputs:  kinds_by_sequence
-- meaning: the conditions of every head over its sequences
SELECT
    study,
    query,
    layer,
    head,
    kind,
    way,
    condition,
    avg(value) AS value,
    any_value(direction) AS direction,
    avg(threshold) AS threshold,
    avg(met::INTEGER) AS met_share
FROM (
    SELECT study, query, layer, head, unnest(conditions, recursive := true)
    FROM kinds_by_sequence
    WHERE study = $study
)
GROUP BY study, query, layer, head, kind, way, condition
