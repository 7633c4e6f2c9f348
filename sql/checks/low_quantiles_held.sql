-- grain:   one row per (sequence, query, layer, head) whose cos_last_p05 is not a 5 % quantile over ln N
-- inputs:  selection_counts, attention_rows
-- meaning: cos_last_p05 is one of the cosines; the N at which the cosine reaches it make up 95 % of the sum of 1/N,
--          those at which it is exceeded less (up to rounding); NULL exactly if more than 5 % have no cosine (only the
--          N at which it is not exceeded are summed, because they are few)
WITH sums AS (
    SELECT n + 1 AS n_keys, sum(1 / n) OVER (ORDER BY n) AS whole
    FROM range(1, (SELECT max(n_keys) FROM attention_rows WHERE study = $study)) AS selections (n)
),
rest AS (
    SELECT
        sequence,
        query,
        layer,
        head,
        sum(1 / n) FILTER (WHERE cos_last IS NULL) AS unknown,
        sum(1 / n) FILTER (WHERE cos_last < cos_last_p05) AS below,
        sum(1 / n) FILTER (WHERE cos_last = cos_last_p05) AS equal
    FROM selection_counts
    JOIN attention_rows USING (study, sequence, query, layer, head)
    WHERE study = $study AND (cos_last > cos_last_p05) IS NOT TRUE
    GROUP BY sequence, query, layer, head
)
SELECT
    sequence,
    query,
    layer,
    head,
    cos_last_p05,
    whole,
    whole - coalesce(unknown, 0) AS known,
    known - coalesce(below, 0) AS reached,
    reached - coalesce(equal, 0) AS exceeded
FROM attention_rows
JOIN sums USING (n_keys)
LEFT JOIN rest USING (sequence, query, layer, head)
WHERE
    study = $study
    AND CASE
        WHEN cos_last_p05 IS NULL THEN known > (0.95 + 1e-9) * whole
        ELSE reached < (0.95 - 1e-9) * whole OR exceeded > (0.95 + 1e-9) * whole OR equal IS NULL
    END
