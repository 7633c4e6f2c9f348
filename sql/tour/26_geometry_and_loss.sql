-- grain:   one row per (kind, measure)
-- inputs:  loss_associations; $study
-- meaning: Which measures of heads go with the loss without them, within layers, by a permutation test of KV groups? Beside
--          them the correlations over all heads, and how far the error is ahead
SELECT kind, measure, heads, correlation, correlation_low, correlation_high, p, correlation_over_all, error_ahead, error_ahead_p_holm
FROM loss_associations
WHERE study = $study
ORDER BY kind, p
