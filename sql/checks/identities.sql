-- grain:   one row per selection that breaks an identity or lies outside the declared domains
-- inputs:  selection_counts
-- meaning: every quantity lies in its declared domain, among them 0 <= k_in <= n and 0 <= k_out <= n_keys - n, and
--          k_in = 1 at n = 1 (A.1)
WITH wrong AS (
    SELECT rowid
    FROM selection_counts
    WHERE
        study = $study
        AND (
            (n = 1 AND k_in <> 1)
            OR (precision_lower_scale_free IS NULL) <> (recall_lower_scale_free IS NULL)
            OR {{ violations(by_n) | indent }}
        )
)
SELECT *
FROM selection_counts
WHERE rowid IN (FROM wrong)
