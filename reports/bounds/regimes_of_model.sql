-- grain:   one row per regime, or none if the study has no fit of the model's weights
-- inputs:  selection_regimes_model; $study, $query
-- meaning: Table 2 for the whole model: first and last N of each regime and the trend of mean Δ/B within it, and the
--          paper's composition of I_N and trend (1 rises, -1 falls); a regime without any N has NULLs
WITH found AS (FROM selection_regimes_model WHERE study = $study AND query = $query)
SELECT
    regime, composition, first_n, last_n, margin_first, margin_last, slope,
    sign(slope)::SMALLINT AS trend,
    paper_trend, positive_share
FROM (
    VALUES
        ('I', 'the sink only', NULL),
        ('II', 'the sink and the top of the tail', 1),
        ('III', 'with peaks of the oscillation', -1),
        ('IV', 'with valleys and the plateau', -1),
        ('V', 'with all of the oscillation and the tail', -1)
) AS paper (regime, composition, paper_trend)
LEFT JOIN found USING (regime)
WHERE EXISTS (FROM found)
ORDER BY list_position(['I', 'II', 'III', 'IV', 'V'], regime)
