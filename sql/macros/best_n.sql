-- grain:   one row per (study, query, layer, head) that attends to more than first_n keys
-- inputs:  selection_means; a measure, and the range of N
-- meaning: the N of the best mean over sequences, and that mean, of every head: FROM best_n('recall', last_n := 64);
--          measure: 'precision', 'recall', 'f_r_max', 'f_r_min' or 'harmonic_mean', the harmonic mean of Precision and
--          Recall; first_n is 2 because one key is always separable; ties by smallest N
CREATE MACRO best_n(measure := 'f_r_max', first_n := 2, last_n := NULL) AS TABLE
WITH measured AS (
    SELECT
        *,
        CASE measure
            WHEN 'precision' THEN precision
            WHEN 'recall' THEN recall
            WHEN 'f_r_max' THEN f_r_max
            WHEN 'f_r_min' THEN f_r_min
            WHEN 'harmonic_mean' THEN 2 * precision * recall / (precision + recall)
            ELSE error('measure must be ''precision'', ''recall'', ''f_r_max'', ''f_r_min'' or ''harmonic_mean''')
        END AS value
    FROM selection_means
    WHERE n >= first_n AND n <= coalesce(last_n, n)
)
SELECT study, query, layer, head, arg_max(n, (value, -n)) AS best_n, max(value) AS value
FROM measured
GROUP BY study, query, layer, head
