-- grain:   one row per (layer, head), of the ten that give most weight to one key between sink and query
-- inputs:  top_keys, tokens, last_query; $study
-- meaning: Which tokens do heads look at, apart from the sink and the query itself, and how far back are they?
WITH heaviest AS (
    FROM top_keys
    WHERE study = $study AND query = last_query($study) AND position NOT IN (0, query)
    QUALIFY row_number() OVER (PARTITION BY sequence, layer, head ORDER BY rank) = 1
)
FROM heaviest
JOIN tokens USING (study, sequence, position)
SELECT
    layer, head,
    avg(weight::DOUBLE) AS weight,
    avg(within_r_min::INTEGER) AS within_r_min,
    avg(query - position) AS tokens_back,
    list(token ORDER BY sequence)[:5] AS first_tokens
GROUP BY layer, head
ORDER BY weight DESC, layer, head
LIMIT 10
