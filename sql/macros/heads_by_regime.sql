-- grain:   one row per (study, query, layer, head) that attends to more than at_n keys
-- inputs:  selection_means, head_taxonomy, regimes_by_sequence
-- meaning: the regime of Table 2 that a head is in at one N in most of its sequences (the first in case of ties), and
--          its kind: FROM heads_by_regime(8); regime I to V and the share of sequences that are in it, their mean slope
--          of Δ/B and share of N with Δ > 0, NULL for a head without a fit of Assumption 3; Precision and Recall at
--          that N, mean over sequences
CREATE MACRO heads_by_regime(at_n := 16) AS TABLE
WITH counted AS (
    SELECT
        study, query, layer, head, regime,
        count(*) AS sequences,
        avg(slope) AS slope,
        avg(positive_share) AS positive_share
    FROM regimes_by_sequence
    WHERE at_n BETWEEN first_n AND last_n
    GROUP BY study, query, layer, head, regime
),
regimes AS (
    SELECT *, sequences / sum(sequences) OVER heads AS share
    FROM counted
    WINDOW heads AS (PARTITION BY study, query, layer, head)
    QUALIFY row_number() OVER (
        PARTITION BY study, query, layer, head
        ORDER BY sequences DESC, list_position(['I', 'II', 'III', 'IV', 'V'], regime)
    ) = 1
)
SELECT study, query, layer, head, label, regime, share, slope, positive_share, precision, recall
FROM selection_means
JOIN head_taxonomy USING (study, query, layer, head)
LEFT JOIN regimes USING (study, query, layer, head)
WHERE n = CASE WHEN at_n >= 1 THEN at_n ELSE error('at_n must be 1 or more') END
