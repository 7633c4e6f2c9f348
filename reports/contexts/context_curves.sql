-- grain:   one row per (query, metric, n, sequence)
-- inputs:  context_heads, attention_rows; $study
-- meaning: mean over heads of Precision, Recall and specificity in one sequence, over the queries that see more than
--          half of n_keys keys and at most so many, for n = 1, 2, 4, … up to half of n_keys; query: position of the last
--          of them; heads: those that see so many keys; no rows unless every_query is set
WITH reached AS (
    SELECT layer, head, max(n_keys) AS most FROM attention_rows WHERE study = $study GROUP BY layer, head
)
SELECT context - 1 AS query, context AS n_keys, metric, n, sequence, any_value(heads) AS heads, avg(value) AS value
FROM (
    UNPIVOT (FROM context_heads WHERE study = $study)
    ON precision, recall, specificity INTO NAME metric VALUE value
)
JOIN reached USING (layer, head)
JOIN LATERAL (SELECT count(*) AS heads FROM reached AS all_heads WHERE all_heads.most >= context) ON true
WHERE n & (n - 1) = 0 AND 2 * n <= context AND context <= most
GROUP BY ALL
ORDER BY query, metric, n, sequence
