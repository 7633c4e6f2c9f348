-- grain:   one row per (study, query, layer, head, kind, condition)
-- inputs:  head_signatures, signature_means, label_heads, taxonomy_thresholds
-- meaning: the conditions of every head by the default thresholds
WITH thresholds AS (
    FROM taxonomy_thresholds()
),
signatures AS (
    SELECT *
    FROM head_signatures
    WHERE study = $study
),
means AS (
    FROM signature_means(signatures)
)
SELECT study, query, layer, head, unnest(conditions, recursive := true)
FROM label_heads(means, thresholds)
