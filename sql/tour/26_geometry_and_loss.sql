-- grain:   one row per measure
-- inputs:  loss_associations; $study
-- meaning: Which measures of heads go with the loss without them? Rank correlations over heads within layers, with the
--          p value of exchanging KV groups; beside them those over all heads, which depth moves
SELECT measure, heads, correlation, correlation_low, correlation_high, p, correlation_over_all
FROM loss_associations
WHERE study = $study
ORDER BY p
