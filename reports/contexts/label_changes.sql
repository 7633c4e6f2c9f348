-- grain:   one row per query but the last
-- inputs:  head_taxonomy, keys_of_queries; $study
-- meaning: number of heads that have another label at the next query, in a larger context; no rows for a single query;
--          n_keys: largest number of keys of a head
WITH followed AS (
    SELECT
        query, label,
        lead(query) OVER by_query AS next_query,
        lead(label) OVER by_query AS next_label
    FROM head_taxonomy
    WHERE study = $study
    WINDOW by_query AS (PARTITION BY layer, head ORDER BY query)
)
SELECT query, n_keys, next_query, count(*) FILTER (WHERE label <> next_label) AS changed, count(*) AS heads
FROM followed
JOIN keys_of_queries($study) USING (query)
WHERE next_query IS NOT NULL
GROUP BY query, n_keys, next_query
ORDER BY query
