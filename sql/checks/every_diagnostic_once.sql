-- grain:   one row per (query, layer, head) whose diagnostics do not run from n = 1 to n_keys - 1, or are impossible
-- inputs:  diagnostics, attention_rows
-- meaning: every head with two keys has its diagnostics at every n; cosines lie within -1 and 1, the sink's columns are
--          NULL only if no sequence attends to it, and removing a vector changes a norm by no more than the vector's
--          own (each up to rounding)
WITH reach AS (
    SELECT
        query,
        layer,
        head,
        max(n_keys) - 1 AS expected,
        bool_or(sink_attended) AS some_sink,
        bool_and(sink_attended) AS all_sink,
        max(norm_y_0) AS longest_y_0,
        max(norm_y_last) AS longest_y_last
    FROM attention_rows
    WHERE study = $study
    GROUP BY query, layer, head
    HAVING max(n_keys) > 1
),
found AS (
    SELECT
        query,
        layer,
        head,
        count(*) AS found,
        bit_count(bitstring_agg(n)) AS several,
        min(n) AS first_n,
        max(n) AS last_n,
        max(greatest(abs(cos_sink), abs(cos_last))) AS largest_cosine,
        min(least(norm_s, norm_s_without_sink, norm_s_without_last)) AS least_norm,
        max(norm_s) AS largest_norm,
        count(norm_s_without_sink) AS without_sink,
        count(cos_sink) AS with_cosine,
        max(abs(norm_s - norm_s_without_sink)) AS sink_adds,
        max(abs(norm_s - norm_s_without_last)) AS last_adds
    FROM diagnostics
    WHERE study = $study
    GROUP BY query, layer, head
)
SELECT
    query, layer, head, found, expected, largest_cosine, least_norm, sink_adds, longest_y_0, last_adds, longest_y_last
FROM found
FULL JOIN reach USING (query, layer, head)
WHERE
    found IS DISTINCT FROM expected
    OR several <> found
    OR first_n <> 1
    OR last_n <> expected
    OR largest_cosine > 1 + 1e-6
    OR least_norm < 0
    OR NOT isfinite(largest_norm)
    OR without_sink <> CASE WHEN some_sink THEN found ELSE 0 END
    OR (with_cosine > 0 AND NOT some_sink)
    OR (all_sink AND sink_adds > longest_y_0 + 1e-5 * largest_norm + 1e-37)
    OR last_adds > longest_y_last + 1e-5 * largest_norm + 1e-37
