-- grain:   one row per (study, query)
-- inputs:  selection_means_model, elbows_of
-- meaning: the elbow of the whole model, as if it were one head
WITH curves AS (
    SELECT query, 0 AS layer, 0 AS head, n, precision, recall
    FROM selection_means_model
    WHERE study = $study
)
SELECT $study AS study, * EXCLUDE (layer, head)
FROM elbows_of(curves)
