-- grain:   one row per (family, kappa, scale)
-- inputs:  monte_carlo; $study
-- meaning: at how many grid points the bounds hold in expectation (within three standard errors), over all and over those
--          that meet the family's assumptions, and the worst gap (negative: the inequality fails by so much)
SELECT
    family,
    kappa,
    scale,
    count(*) AS points,
    count(*) FILTER (WHERE meets_assumptions) AS points_meeting,
    avg(premise_share) AS premise_share,
    avg(precision_holds::INTEGER) AS precision_holds,
    avg(recall_holds::INTEGER) AS recall_holds,
    avg(precision_upper_holds::INTEGER) AS precision_upper_holds,
    avg(recall_upper_holds::INTEGER) AS recall_upper_holds,
    avg(precision_holds::INTEGER) FILTER (WHERE meets_assumptions) AS precision_holds_meeting,
    avg(recall_holds::INTEGER) FILTER (WHERE meets_assumptions) AS recall_holds_meeting,
    min(precision_gap) AS worst_precision_gap,
    min(recall_gap) AS worst_recall_gap,
    min(precision_upper_gap) AS worst_precision_upper_gap,
    min(recall_upper_gap) AS worst_recall_upper_gap
FROM monte_carlo
WHERE study = $study
GROUP BY family, kappa, scale
ORDER BY family, scale, kappa
