-- inputs:  selection_means{{ "_model" if model }}, elbows_of
-- meaning: the elbow of {{ "the whole model, as if it were one head" if model else "every head" }}
WITH curves AS (
    SELECT query, {{ "0 AS layer, 0 AS head" if model else "layer, head" }}, n, precision, recall
    FROM selection_means{{ "_model" if model }}
    WHERE study = $study
)
SELECT $study AS study, *{{ " EXCLUDE (layer, head)" if model }}
FROM elbows_of(curves)
