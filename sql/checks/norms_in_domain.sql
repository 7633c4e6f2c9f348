-- grain:   one row per (layer, kv_head) with norms that no value states can have
-- inputs:  assumption_norms
-- meaning: lengths and coefficients of variation are finite and not negative, quantiles in order; status 'ok' has C above
--          0, 'zero' has C = 0 and no λ
SELECT layer, kv_head, status, c, lambda_sink, cv_of_mean_norm, cv_within_sequence, norm_p05, norm_p95
FROM assumption_norms
WHERE
    study = $study
    AND (
        CASE status
            WHEN 'ok' THEN NOT coalesce(c > 0 AND isfinite(c) AND lambda_sink >= 0 AND isfinite(lambda_sink), false)
            WHEN 'zero' THEN c IS DISTINCT FROM 0 OR lambda_sink IS NOT NULL
            ELSE true
        END
        OR c_se < 0
        OR cv_of_mean_norm < 0
        OR cv_within_sequence < 0
        OR cv_within_sequence_sd < 0
        OR norm_p05 < 0
        OR norm_p05 > norm_p25
        OR norm_p25 > c
        OR c > norm_p75
        OR norm_p75 > norm_p95
        OR NOT isfinite(norm_p95)
    )
