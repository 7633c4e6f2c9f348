-- grain:   one row per (family, kappa, scale)
-- inputs:  monte_carlo; $study
-- meaning: results for the bounds in expectation over the grid, at the points that have bounds; _points: grid points
--          with that bound (N = 1 has no printed one); _holds: share of those at which it holds within three standard
--          errors; _meeting: the same for points that meet the family's assumptions; _share: share of single draws on
--          the right side of the bound; worst_: smallest gap (negative: the inequality fails by this amount)
SELECT
    family,
    kappa,
    scale,
    count(*) AS points,
    count(*) FILTER (WHERE meets_assumptions) AS points_meeting,
    avg(premise_share) AS premise_share,
    count(precision_holds) AS precision_points,
    count(recall_holds) AS recall_points,
    count(precision_upper_holds) AS precision_upper_points,
    count(recall_upper_holds) AS recall_upper_points,
    avg(precision_holds::INTEGER) AS precision_holds,
    avg(recall_holds::INTEGER) AS recall_holds,
    avg(precision_upper_holds::INTEGER) AS precision_upper_holds,
    avg(recall_upper_holds::INTEGER) AS recall_upper_holds,
    count(precision_holds) FILTER (WHERE meets_assumptions) AS precision_points_meeting,
    count(recall_holds) FILTER (WHERE meets_assumptions) AS recall_points_meeting,
    count(precision_upper_holds) FILTER (WHERE meets_assumptions) AS precision_upper_points_meeting,
    count(recall_upper_holds) FILTER (WHERE meets_assumptions) AS recall_upper_points_meeting,
    avg(precision_holds::INTEGER) FILTER (WHERE meets_assumptions) AS precision_holds_meeting,
    avg(recall_holds::INTEGER) FILTER (WHERE meets_assumptions) AS recall_holds_meeting,
    avg(precision_upper_holds::INTEGER) FILTER (WHERE meets_assumptions) AS precision_upper_holds_meeting,
    avg(recall_upper_holds::INTEGER) FILTER (WHERE meets_assumptions) AS recall_upper_holds_meeting,
    avg(precision_lower_share) AS precision_lower_share,
    avg(recall_lower_share) AS recall_lower_share,
    avg(precision_upper_share) AS precision_upper_share,
    avg(recall_upper_share) AS recall_upper_share,
    min(precision_gap) AS worst_precision_gap,
    min(recall_gap) AS worst_recall_gap,
    min(precision_upper_gap) AS worst_precision_upper_gap,
    min(recall_upper_gap) AS worst_recall_upper_gap
FROM monte_carlo
WHERE study = $study
GROUP BY family, kappa, scale
ORDER BY family, scale, kappa
