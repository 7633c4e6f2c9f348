-- grain:   one row per measure
-- inputs:  loss_associations; $study
-- meaning: Which measures of heads go with the loss without them, within layers, by a permutation test of KV groups? Beside
--          them the correlations over all heads, which depth moves
SELECT measure, heads, correlation, correlation_low, correlation_high, p, correlation_over_all
FROM loss_associations
WHERE study = $study
ORDER BY p
