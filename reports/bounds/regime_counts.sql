-- grain:   one row per regime that some head has
-- inputs:  selection_regimes; $study, $query
-- meaning: Table 2 over heads: number of heads that have a regime, and of those in which mean Δ/B rises, falls, or is above
--          0 at most N of the regime
SELECT
    regime,
    count(*) AS heads,
    count(*) FILTER (WHERE slope > 0) AS rising,
    count(*) FILTER (WHERE slope < 0) AS falling,
    count(*) FILTER (WHERE positive_share > 0.5) AS mostly_positive
FROM selection_regimes
WHERE study = $study AND query = $query
GROUP BY regime
ORDER BY list_position(['I', 'II', 'III', 'IV', 'V'], regime)
