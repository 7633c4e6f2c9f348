-- grain:   one row per (study, query, layer, head)
-- inputs:  selection_means, elbows_of
-- meaning: the elbow of every head
WITH curves AS (
    SELECT query, layer, head, n, precision, recall
    FROM selection_means
    WHERE study = $study
)
SELECT $study AS study, *
FROM elbows_of(curves)
