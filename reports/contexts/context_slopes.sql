-- grain:   one row per (kept, layer, head, sequence); kept is number or share
-- inputs:  context_heads, attention_rows; $study, $n
-- meaning: by how much Precision, Recall and specificity of a head change in one sequence as the context doubles: slopes
--          of straight lines in its logarithm, at N = $n, a quarter of the smallest context or less (number), and at a
--          quarter of every context, from N = 2 on (share); first and last context: those of the line, of two or more;
--          no rows unless every_query is set
WITH reached AS (
    SELECT layer, head, max(n_keys) AS most FROM attention_rows WHERE study = $study GROUP BY layer, head
),
whole AS (
    SELECT * FROM context_heads JOIN reached USING (layer, head) WHERE study = $study AND context <= most
),
chosen AS (
    SELECT 'number' AS kept, * FROM whole WHERE n = $n AND 4 * n <= context
    UNION ALL
    SELECT 'share', * FROM whole WHERE 4 * n = context AND n > 1
)
SELECT
    kept, layer, head, sequence,
    min(context) AS first_context,
    max(context) AS last_context,
    regr_slope(precision, log2(context)) AS precision,
    regr_slope(recall, log2(context)) AS recall,
    regr_slope(specificity, log2(context)) AS specificity
FROM chosen
GROUP BY kept, layer, head, sequence
HAVING count(*) > 1
ORDER BY kept, layer, head, sequence
