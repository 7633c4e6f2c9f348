-- grain:   one row per (layer, kv_head)
-- inputs:  assumption_norms; $study
-- meaning: Assumption 1 for each KV head: C, λ, and the coefficients of variation of the norms (Figure 2 right), with
--          the number of sequences, since cv_of_mean_norm falls with one over its square root
SELECT
    layer, kv_head, status, sequences, c, c_low, c_high, lambda_sink, cv_of_mean_norm, cv_of_expected_norm,
    cv_within_sequence
FROM assumption_norms
WHERE study = $study
ORDER BY layer, kv_head
