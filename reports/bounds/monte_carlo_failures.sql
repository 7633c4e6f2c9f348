-- grain:   one row per (inequality, family, kappa, scale) that fails at some point of the grid; inequality is
--          precision_lower, recall_lower, precision_upper or recall_upper
-- inputs:  monte_carlo; $study
-- meaning: number of the points with a bound at which the mean lies beyond it by more than three standard errors, over
--          all points and over those that meet the family's assumptions (_meeting), and the point with the worst gap;
--          worst first
SELECT
    inequality, family, kappa, scale,
    count(*) FILTER (WHERE NOT holds) OVER kind AS failing,
    count(*) OVER kind AS points,
    count(*) FILTER (WHERE NOT holds AND meets_assumptions) OVER kind AS failing_meeting,
    count(*) FILTER (WHERE meets_assumptions) OVER kind AS points_meeting,
    head_dim, n_keys, n, beta, lambda_sink, rho_0, meets_assumptions, premise_share, mean, bound, gap
FROM monte_carlo
UNPIVOT (
    (mean, bound, gap, holds) FOR inequality IN (
        (precision, precision_lower, precision_gap, precision_holds) AS 'precision_lower',
        (recall, recall_lower, recall_gap, recall_holds) AS 'recall_lower',
        (precision, precision_upper, precision_upper_gap, precision_upper_holds) AS 'precision_upper',
        (recall, recall_upper, recall_upper_gap, recall_upper_holds) AS 'recall_upper'
    )
)
WHERE study = $study AND holds IS NOT NULL
WINDOW
    kind AS (PARTITION BY inequality, family, kappa, scale),
    by_verdict AS (
        PARTITION BY inequality, family, kappa, scale, holds
        ORDER BY gap, head_dim, n_keys, n, beta, lambda_sink, rho_0
    )
QUALIFY NOT holds AND row_number() OVER by_verdict = 1
ORDER BY gap, inequality, family, kappa, scale
