-- inputs:  kinds_moved, head_taxonomy
-- meaning: labels with each threshold changed, compared with those of head_taxonomy
SELECT
    study,
    query,
    threshold,
    factor,
    any_value(kinds_moved.value) AS value,
    count(*) AS heads,
    count(*) FILTER (WHERE kinds_moved.label <> head_taxonomy.label) AS changed,
    avg(kinds_moved.other_share) AS other_share
FROM kinds_moved
JOIN head_taxonomy USING (study, query, layer, head)
WHERE study = $study
GROUP BY study, query, threshold, factor
ORDER BY query, threshold, factor
