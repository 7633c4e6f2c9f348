-- grain:   one row per (query, layer, head, arithmetic) that is duplicated, belongs to no head, or has values that no
--          counts give
-- inputs:  arithmetic, heads, attention_rows, selection
-- meaning: shares of N lie between 0 and 1, differences between -1 and 1, and are 0 where no N differs; exact Precision and
--          Recall at N = 4 are the means over the first sequences of the metrics of the selections, and exist exactly if
--          the head has more than four keys; a head has all three arithmetics (up to rounding)
WITH reach AS (
    SELECT query, layer, head, max(n_keys) AS n_keys
    FROM attention_rows
    WHERE study = $study
    GROUP BY query, layer, head
),
found AS (
    SELECT
        *,
        count(*) OVER (PARTITION BY query, layer, head) AS rows,
        count(*) OVER (PARTITION BY query, layer, head, arithmetic) AS alike
    FROM arithmetic
    WHERE study = $study
),
at_4 AS (
    SELECT query, layer, head, count(*) AS sequences, avg(precision) AS precision, avg(recall) AS recall
    FROM selection
    WHERE study = $study AND n = 4 AND sequence < (SELECT max(sequences) FROM found)
    GROUP BY query, layer, head
)
SELECT query, layer, head, arithmetic, found.sequences, n_values, recall_differs, precision_differs, recall_at_4, precision_at_4
FROM found
LEFT JOIN reach USING (query, layer, head)
LEFT JOIN at_4 USING (query, layer, head)
WHERE
    n_keys IS NULL
    OR rows <> 3
    OR alike <> 1
    OR arithmetic NOT IN ('float32_loop', 'float32_cdist', 'float64_literal')
    OR n_values NOT BETWEEN 1 AND n_keys - 1
    OR at_4.sequences <> found.sequences
    OR recall_at_4 IS DISTINCT FROM NULL AND NOT coalesce(abs(recall_at_4 - recall) <= 1e-6, false)
    OR precision_at_4 IS DISTINCT FROM NULL AND NOT coalesce(abs(precision_at_4 - precision) <= 1e-6, false)
    OR (n_keys > 4) <> (precision_at_4 IS NOT NULL)
{% for metric in ("recall", "precision") %}
    OR ({{ metric }}_at_4 IS NULL) <> (recall_at_4 IS NULL)
    OR ({{ metric }}_difference_at_4 IS NULL) <> (recall_at_4 IS NULL)
    OR NOT ({{ metric }}_differs >= 0 AND {{ metric }}_differs <= 1 + 1e-9)
    OR NOT (abs({{ metric }}_difference) <= 1)
    OR NOT (abs({{ metric }}_difference_at_4) <= 1)
    OR ({{ metric }}_differs = 0 AND {{ metric }}_difference <> 0)
{% endfor %}
