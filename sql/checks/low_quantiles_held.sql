-- grain:   one row per (sequence, query, layer, head) whose cos_last_p05 is not a 5 % quantile over ln N
-- inputs:  selection_counts, attention_rows
-- meaning: cos_last_p05 is one of the cosines; the N at which the cosine reaches it make up 95 % of the sum of 1/N,
--          those at which it is exceeded less (up to rounding); NULL exactly if more than 5 % have no cosine
SELECT
    sequence,
    query,
    layer,
    head,
    any_value(cos_last_p05) AS cos_last_p05,
    sum(1 / n) AS whole,
    coalesce(sum(1 / n) FILTER (WHERE cos_last >= cos_last_p05), 0) AS reached,
    coalesce(sum(1 / n) FILTER (WHERE cos_last > cos_last_p05), 0) AS exceeded,
    coalesce(sum(1 / n) FILTER (WHERE cos_last IS NOT NULL), 0) AS known
FROM selection_counts
JOIN (
    SELECT sequence, query, layer, head, cos_last_p05
    FROM attention_rows
    WHERE study = $study
) USING (sequence, query, layer, head)
WHERE study = $study
GROUP BY sequence, query, layer, head
HAVING
    CASE
        WHEN any_value(cos_last_p05) IS NULL THEN known > (0.95 + 1e-9) * whole
        ELSE
            reached < (0.95 - 1e-9) * whole
            OR exceeded > (0.95 + 1e-9) * whole
            OR NOT bool_or(coalesce(cos_last = cos_last_p05, false))
    END
