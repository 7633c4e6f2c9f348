-- grain:   one row per (query, layer, head) whose elbow is in an impossible place
-- inputs:  elbows, elbows_model, attention_rows
-- meaning: a head either has an elbow with 2 < elbow_n < lowest_n <= n_keys - 1 and a mean at least that at lowest_n, or
--          has none and a curve that does not bend, is lowest at N = 2, or consists of N = 1 alone; the same for the
--          model, whose layer and head are NULL
WITH reach AS (
    SELECT query, layer, head, max(n_keys) - 1 AS last_n
    FROM attention_rows
    WHERE study = $study
    GROUP BY GROUPING SETS ((query, layer, head), (query))
)
SELECT actual.query, actual.layer, actual.head, status, elbow_n, lowest_n
FROM (FROM elbows UNION ALL BY NAME FROM elbows_model) AS actual
LEFT JOIN reach
    ON actual.query = reach.query
    AND actual.layer IS NOT DISTINCT FROM reach.layer
    AND actual.head IS NOT DISTINCT FROM reach.head
WHERE
    study = $study
    AND NOT coalesce(
        last_n > 0
        AND CASE status
            WHEN 'ok' THEN
                elbow_n > 2
                AND elbow_n < lowest_n
                AND lowest_n <= last_n
                AND harmonic_mean >= lowest_harmonic_mean
            WHEN 'no_bend' THEN elbow_n IS NULL AND harmonic_mean IS NULL AND lowest_n > 2 AND lowest_n <= last_n
            WHEN 'no_decline' THEN elbow_n IS NULL AND harmonic_mean IS NULL AND lowest_n = 2
            WHEN 'trivial' THEN elbow_n IS NULL AND harmonic_mean IS NULL AND lowest_n IS NULL AND last_n = 1
        END,
        false
    )
