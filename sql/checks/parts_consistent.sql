-- grain:   one row per (sequence, query, layer, head) whose parts of the output contradict each other
-- inputs:  attention_rows
-- meaning: norms are finite and not negative; the sink's is NULL exactly where it is not attended; the rest's sum is no
--          longer than the sum of its lengths (up to rounding: 1e-5 of it, and 1e-37), and both are 0 without a rest
SELECT sequence, query, layer, head, n_keys, sink_attended, norm_y_0, norm_y_last, norm_rest, total_rest
FROM attention_rows
WHERE
    study = $study
    AND (
        (norm_y_0 IS NULL) <> (NOT sink_attended)
        OR least(norm_y_0, norm_y_last, norm_rest, total_rest) < 0
        OR NOT isfinite(coalesce(norm_y_0, 0) + norm_y_last + norm_rest + total_rest)
        OR norm_rest > total_rest * (1 + 1e-5) + 1e-37
        OR (total_rest > 0 AND n_keys <= CASE WHEN sink_attended THEN 2 ELSE 1 END)
    )
