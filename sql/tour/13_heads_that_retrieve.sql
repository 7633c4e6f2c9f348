-- grain:   one row per (layer, head), of the ten that retrieve most
-- inputs:  head_taxonomy, head_conditions, last_query; $study
-- meaning: Which heads are most like a Retriever, and which conditions of its rule, if any, does each miss in some
--          sequence, in how many, and by how much on average?
FROM head_taxonomy
JOIN head_conditions USING (study, query, layer, head)
SELECT
    layer, head, label, retriever_score,
    list({'missed': condition, 'met_share': met_share, 'value': value, 'threshold': threshold} ORDER BY condition)
        FILTER (WHERE met_share < 1) AS missed
WHERE study = $study AND query = last_query($study) AND kind = 'Retriever'
GROUP BY ALL
ORDER BY retriever_score DESC NULLS LAST, layer, head
LIMIT 10
