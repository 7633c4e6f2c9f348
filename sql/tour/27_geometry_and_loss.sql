-- grain:   one row per (study, measure)
-- inputs:  head_measures
-- meaning: Which measures of heads correlate with the loss without them? Spearman's rank correlation, for every study
--          with effects
WITH paired AS (
    FROM head_measures AS geometry
    JOIN head_measures AS loss USING (study, layer, head)
    SELECT
        study,
        geometry.measure AS measure,
        rank() OVER (PARTITION BY study, geometry.measure ORDER BY geometry.value)
            + (count(*) OVER (PARTITION BY study, geometry.measure, geometry.value) - 1) / 2 AS rank_of_measure,
        rank() OVER (PARTITION BY study, geometry.measure ORDER BY loss.value)
            + (count(*) OVER (PARTITION BY study, geometry.measure, loss.value) - 1) / 2 AS rank_of_loss
    WHERE loss.measure = 'delta_loss_zero'
        AND geometry.measure NOT LIKE 'delta_loss%'
        AND geometry.measure NOT LIKE 'kl_%'
        AND geometry.value IS NOT NULL
        AND loss.value IS NOT NULL
)
FROM paired
SELECT study, measure, count(*) AS heads, round(corr(rank_of_measure, rank_of_loss), 6) AS rank_correlation
GROUP BY study, measure
HAVING rank_correlation IS NOT NULL AND NOT isnan(rank_correlation)
ORDER BY study, abs(rank_correlation) DESC, measure
