-- grain:   one row per (sequence, query, layer, head) with a wrong description, or with selections and none
-- inputs:  attention_rows, selection_counts, studies
-- meaning: every head with selections has a row; the query attends to itself at least and to no later key, to the sink
--          exactly if to all keys; its weights and that of a learned sink, which is not negative, sum to 1 (up to
--          float32: one rounding per key, and 1e-5; up to 0.02 if a model read in two passes gave them in half
--          precision), and the weights alone to more than 0
WITH allowed AS (
    SELECT
        CASE
            WHEN json_extract_string(provenance, '$.inputs.model.attention') = 'two-pass' AND dtype <> 'float32' THEN 0.02
            ELSE 1e-5
        END AS slack
    FROM studies
    WHERE study = $study
)
SELECT sequence, query, layer, head, n_keys, sink_attended, weight_sum, learned_sink
FROM attention_rows
WHERE
    study = $study
    AND (
        NOT n_keys BETWEEN 1 AND query + 1
        OR sink_attended <> (n_keys = query + 1)
        OR NOT (weight_sum > 0 AND learned_sink >= 0)
        OR NOT abs(weight_sum::DOUBLE + learned_sink - 1) <= (SELECT max(slack) FROM allowed) + n_keys * 2.0 ** -24
    )
UNION ALL
SELECT sequence, query, layer, head, n_keys, NULL, NULL, NULL
FROM selection_counts
ANTI JOIN attention_rows USING (study, sequence, query, layer, head)
WHERE study = $study AND n = 1
