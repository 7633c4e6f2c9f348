-- grain:   one row per (layer, head, is_best, place)
-- inputs:  query_heads, tokens; $study
-- meaning: the five queries of all sequences at which a head separates best, and the five at which it does worst: those
--          of the highest and of the lowest Recall, mean over ln N, of the queries that see at least 32 keys, whose
--          number is queries; before, token, after: the query with the tokens around it, untrusted
WITH ends AS (
    SELECT
        layer, head,
        count(*) AS queries,
        arg_max(
            {'sequence': sequence, 'query': query, 'recall': recall_level}, (recall_level, -sequence, -query), 5
        ) AS best,
        arg_min({'sequence': sequence, 'query': query, 'recall': recall_level}, (recall_level, sequence, query), 5) AS worst
    FROM query_heads
    WHERE study = $study AND n_keys >= 32 AND recall_level IS NOT NULL
    GROUP BY layer, head
),
listed AS (
    SELECT layer, head, queries, true AS is_best, generate_subscripts(best, 1) AS place, unnest(best, recursive := true)
    FROM ends
    UNION ALL
    SELECT layer, head, queries, false, generate_subscripts(worst, 1), unnest(worst, recursive := true)
    FROM ends
)
SELECT
    layer, head, is_best, place, listed.sequence, query, recall, queries,
    list(token ORDER BY position) FILTER (position < query) AS before,
    any_value(token) FILTER (position = query) AS token,
    list(token ORDER BY position) FILTER (position > query) AS after
FROM listed
JOIN tokens ON tokens.sequence = listed.sequence AND position BETWEEN query - 8 AND query + 3
WHERE study = $study
GROUP BY layer, head, is_best, place, listed.sequence, query, recall, queries
ORDER BY layer, head, is_best DESC, place
