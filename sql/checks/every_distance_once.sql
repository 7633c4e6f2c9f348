-- grain:   one row per (layer, kv_head) whose distances do not run from 1 to context_length - 2, each once
-- inputs:  cosine_by_distance, heads, studies
-- meaning: every KV head has a mean cosine, or NULL, at every distance of two positions after the sink
WITH found AS (
    SELECT
        layer,
        kv_head,
        count(*) AS found,
        bit_count(bitstring_agg(distance)) AS several,
        min(distance) AS first_distance,
        max(distance) AS last_distance
    FROM cosine_by_distance
    WHERE study = $study
    GROUP BY layer, kv_head
),
wanted AS (
    SELECT DISTINCT layer, kv_head, context_length - 2 AS expected
    FROM heads
    JOIN studies USING (study)
    WHERE study = $study AND context_length > 2
)
SELECT layer, kv_head, found, expected
FROM found
FULL JOIN wanted USING (layer, kv_head)
WHERE found IS DISTINCT FROM expected OR several <> found OR first_distance <> 1 OR last_distance <> expected
