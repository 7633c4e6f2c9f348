-- grain:   one row per selection that breaks an identity, lies outside the declared domains or contradicts itself
-- inputs:  selection_counts
-- meaning: every quantity lies in its declared domain, among them 0 <= k_in <= n and 0 <= k_out <= n_keys - n, and
--          k_in = 1 at n = 1 (A.1); no key left out lies within r_max exactly if r_min exceeds r_max (up to rounding of
--          the stored radii), and then all selected keys lie within r_min; J, the selected keys but the sink, is empty
--          only at n = 1, and then all its quantities are NULL; otherwise smallest, mean and largest are in order; no
--          sum of vectors is longer than the sum of lengths (each up to rounding: 1e-5 of it, and 1e-37, near which
--          float32 has fewer digits)
WITH wrong AS (
    SELECT rowid, n - (a_0 IS NOT NULL)::INTEGER AS in_j
    FROM selection_counts
    WHERE
        study = $study
        AND (
            (n = 1 AND k_in <> 1)
            OR (k_out = 0 AND (r_min < r_max * (1 - 1e-6) OR k_in <> n))
            OR (k_out > 0 AND r_min * (1 - 1e-6) > r_max)
            OR (precision_lower_scale_free IS NULL) <> (recall_lower_scale_free IS NULL)
            OR (s_in IS NULL) <> (in_j = 0)
            OR (a_min_in IS NULL) <> (in_j = 0)
            OR (a_max_in IS NULL) <> (in_j = 0)
            OR (rho_out IS NULL) <> (in_j = 0)
            OR (a_0 IS NOT NULL AND n_keys <= query)
            OR s_in * (1 + 1e-5) + 1e-37 < in_j * a_min_in
            OR s_in * (1 - 1e-5) - 1e-37 > in_j * a_max_in
            OR s_in * (1 + 1e-5) + 1e-37 < coalesce(norm_s_without_sink, norm_s)
            OR {{ violations(by_n) | indent }}
        )
)
FROM selection_counts
WHERE rowid IN (SELECT rowid FROM wrong)
