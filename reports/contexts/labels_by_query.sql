-- grain:   one row per (query, label)
-- inputs:  head_taxonomy, keys_of_queries, kinds; $study
-- meaning: number of heads of each kind at each context size, including kinds without heads; n_keys: largest number of
--          keys of a head; share: of all heads
SELECT
    query, n_keys, kinds.label,
    count(*) FILTER (WHERE labelled.label = kinds.label) AS heads,
    heads / count(*) AS share
FROM head_taxonomy AS labelled
JOIN keys_of_queries($study) USING (query)
CROSS JOIN kinds() AS kinds
WHERE study = $study
GROUP BY query, n_keys, kinds.label, place
ORDER BY query, place
