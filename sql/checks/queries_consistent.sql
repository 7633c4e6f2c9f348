-- grain:   one row per (sequence, query, layer, head) whose measures are impossible
-- inputs:  query_heads, attention_rows
-- meaning: every quantity of every query lies in its declared domain, its key of largest weight is one that it sees, and
--          it sees as many keys as at the queries that are measured at every N; the keys that are listed begin with the
--          first, one weight each
SELECT sequence, query, layer, head, n_keys, top_position
FROM query_heads
WHERE
    study = $study
    AND (
        n_keys > query + 1
        OR top_position <= query - n_keys
        OR top_positions[1] <> top_position
        OR len(top_positions) <> least(n_keys, 16)
        OR len(top_weights) <> len(top_positions)
        OR {{ violations(of_queries) }}
    )
UNION ALL
SELECT sequence, query, layer, head, query_heads.n_keys, query_heads.top_position
FROM query_heads
JOIN attention_rows USING (study, sequence, query, layer, head)
WHERE study = $study AND query_heads.n_keys <> attention_rows.n_keys
