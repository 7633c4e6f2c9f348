-- grain:   one row per (relation, query, layer, head) whose assumption does not have exactly one row
-- inputs:  assumption_norms, assumption_similarity, assumption_similarity_model, assumption_weights,
--          assumption_weights_model, heads, attention_rows, studies
-- meaning: every KV head has a row for its norms and its similarity, every head one for its weights at every query, and
--          the model one for both; head is the KV head in the first two
WITH counted AS (
    SELECT DISTINCT 'assumption_norms' AS relation, layer, kv_head AS head, 1 AS wanted
    FROM heads
    WHERE study = $study
    UNION ALL BY NAME
    SELECT DISTINCT 'assumption_similarity' AS relation, layer, kv_head AS head, 1 AS wanted
    FROM heads
    WHERE study = $study
    UNION ALL BY NAME
    SELECT DISTINCT 'assumption_weights' AS relation, query, layer, head, 1 AS wanted
    FROM attention_rows
    WHERE study = $study
    UNION ALL BY NAME
    SELECT 'assumption_similarity_model' AS relation, 1 AS wanted
    FROM studies
    WHERE study = $study
    UNION ALL BY NAME
    SELECT DISTINCT 'assumption_weights_model' AS relation, query, 1 AS wanted
    FROM attention_rows
    WHERE study = $study
    UNION ALL BY NAME
    SELECT 'assumption_norms' AS relation, layer, kv_head AS head, 1 AS found
    FROM assumption_norms
    WHERE study = $study
    UNION ALL BY NAME
    SELECT 'assumption_similarity' AS relation, layer, kv_head AS head, 1 AS found
    FROM assumption_similarity
    WHERE study = $study
    UNION ALL BY NAME
    SELECT 'assumption_weights' AS relation, query, layer, head, 1 AS found
    FROM assumption_weights
    WHERE study = $study
    UNION ALL BY NAME
    SELECT 'assumption_similarity_model' AS relation, 1 AS found
    FROM assumption_similarity_model
    WHERE study = $study
    UNION ALL BY NAME
    SELECT 'assumption_weights_model' AS relation, query, 1 AS found
    FROM assumption_weights_model
    WHERE study = $study
)
SELECT relation, query, layer, head, count(wanted) AS wanted, count(found) AS found
FROM counted
GROUP BY relation, query, layer, head
HAVING count(wanted) <> 1 OR count(found) <> 1
