-- grain:   one row per (sequence, query, layer, head, kappa) whose upper bounds are not those of n = 1 to n_keys - 1
-- inputs:  upper_bounds, attention_rows, selection_counts, heads, value_scales
-- meaning: every head with two keys has every n of every kappa once, and there is at least one kappa; there are no more
--          bounds than selections that include a key other than the sink, and no fewer than those of them with weighted
--          norms above 0, unless the scale that they are divided by is 0; which of its bounds are NULL is not compared
WITH wanted AS (
    SELECT sequence, query, layer, head, kappa, n_keys - 1 AS expected, value_scale
    FROM attention_rows
    LEFT JOIN (SELECT DISTINCT kappa FROM upper_bounds WHERE study = $study) ON true
    LEFT JOIN heads USING (study, layer, head)
    LEFT JOIN value_scales USING (study, sequence, query, layer, kv_head)
    WHERE study = $study AND n_keys > 1
),
possible AS (
    SELECT sequence, query, layer, head, count(s_in) AS most, count(nullif(a_max_out + s_in, 0)) AS least
    FROM selection_counts
    WHERE study = $study
    GROUP BY sequence, query, layer, head
),
found AS (
    SELECT
        sequence,
        query,
        layer,
        head,
        kappa,
        count(*) AS found,
        bit_count(bitstring_agg(n)) AS several,
        min(n) AS first_n,
        max(n) AS last_n,
        any_value(scale) AS scale,
        count(precision_upper) AS bounds
    FROM upper_bounds
    WHERE study = $study
    GROUP BY sequence, query, layer, head, kappa
)
SELECT sequence, query, layer, head, kappa, found, expected, bounds, least, most, scale, value_scale
FROM found
FULL JOIN wanted USING (sequence, query, layer, head, kappa)
LEFT JOIN possible USING (sequence, query, layer, head)
WHERE
    found IS DISTINCT FROM expected
    OR several <> found
    OR first_n <> 1
    OR last_n <> expected
    OR bounds > coalesce(most, 0)
    OR (bounds < least AND (scale = 'raw' OR value_scale > 0))
