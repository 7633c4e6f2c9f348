-- grain:   one row per (sequence, query, layer, head) that is described otherwise than once, or wrongly
-- inputs:  attention_rows, selection_counts
-- meaning: every head with selections has a row; the query attends to itself at least and to no later key, to the sink
--          exactly if to all, and its weights sum to more than 0 and at most 1 (up to rounding)
SELECT
    sequence,
    query,
    layer,
    head,
    count(*) AS found,
    any_value(n_keys) AS n_keys,
    any_value(sink_attended) AS sink_attended,
    any_value(weight_sum) AS weight_sum
FROM attention_rows
WHERE study = $study
GROUP BY sequence, query, layer, head
HAVING
    count(*) <> 1
    OR NOT any_value(n_keys) BETWEEN 1 AND query + 1
    OR any_value(sink_attended) <> (any_value(n_keys) = query + 1)
    OR NOT (any_value(weight_sum) > 0 AND any_value(weight_sum) <= 1 + 1e-3)
UNION ALL
SELECT DISTINCT sequence, query, layer, head, 0, n_keys, NULL, NULL
FROM selection_counts
ANTI JOIN attention_rows USING (study, sequence, query, layer, head)
WHERE study = $study
