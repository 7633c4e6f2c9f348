-- grain:   one row per (query, label)
-- inputs:  head_taxonomy, attention_rows, kinds; $study
-- meaning: number of heads of each kind at each context size, including kinds without heads; n_keys: largest number of
--          keys of a head; share: of all heads
WITH keys AS (
    SELECT query, max(n_keys) AS n_keys
    FROM attention_rows
    WHERE study = $study
    GROUP BY query
),
labelled AS (
    SELECT query, label
    FROM head_taxonomy
    WHERE study = $study
)
SELECT
    query,
    n_keys,
    kinds.label,
    count(*) FILTER (WHERE labelled.label = kinds.label) AS heads,
    heads / count(*) AS share
FROM labelled
JOIN keys USING (query)
CROSS JOIN kinds() AS kinds
GROUP BY query, n_keys, kinds.label, place
ORDER BY query, place
