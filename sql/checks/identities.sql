-- grain:   one row per selection that breaks an identity
-- inputs:  selection_counts
-- meaning: 0 <= k_in <= n, 0 <= k_out <= n_keys - n, and k_in = 1 at n = 1 (A.1)
SELECT sequence, query, layer, head, n, n_keys, k_in, k_out
FROM selection_counts
WHERE
    study = $study
    AND (k_in < 0 OR k_in > n OR k_out < 0 OR k_out > n_keys - n OR (n = 1 AND k_in <> 1))
