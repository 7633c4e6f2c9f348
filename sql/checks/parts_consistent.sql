-- grain:   one row per (sequence, query, layer, head) whose parts of the output contradict each other
-- inputs:  attention_rows
-- meaning: every quantity lies in its declared domain; the sink's norm is NULL exactly if it is not attended; the
--          lengths of the rest sum to 0 if there is no rest
SELECT sequence, query, layer, head, n_keys, sink_attended, norm_y_0, norm_y_last, norm_rest, total_rest
FROM attention_rows
WHERE
    study = $study
    AND (
        (norm_y_0 IS NULL) <> (NOT sink_attended)
        OR (total_rest > 0 AND n_keys <= CASE WHEN sink_attended THEN 2 ELSE 1 END)
        OR {{ violations(of_attention) }}
    )
