-- grain:   one row per (study, query, layer, head) that attends to more than at_n keys
-- inputs:  selection_means, head_taxonomy, selection_regimes
-- meaning: the regime of Table 2 that every head is in at one N, beside its kind: FROM heads_by_regime(8); regime I to V,
--          with its first and last N and the slope and sign of Δ/B in it, NULL for a head without a fit of Assumption 3;
--          Precision and Recall at that N, mean over sequences
CREATE MACRO heads_by_regime(at_n := 16) AS TABLE
WITH regimes AS (
    SELECT study, query, layer, head, regime, first_n, last_n, slope, positive_share
    FROM selection_regimes
    WHERE at_n BETWEEN first_n AND last_n
)
SELECT study, query, layer, head, label, regime, first_n, last_n, slope, positive_share, precision, recall
FROM selection_means
JOIN head_taxonomy USING (study, query, layer, head)
LEFT JOIN regimes USING (study, query, layer, head)
WHERE n = CASE WHEN at_n >= 1 THEN at_n ELSE error('at_n must be 1 or more') END
