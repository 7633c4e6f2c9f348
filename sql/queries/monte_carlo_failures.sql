-- grain:   one row per (grid point, family, kappa, scale, inequality) that fails in expectation, at most 100
-- inputs:  monte_carlo; $study
-- meaning: where a bound is beyond the mean by more than three standard errors, and by how much, worst first; inequality is
--          precision_lower, recall_lower, precision_upper or recall_upper
SELECT
    inequality,
    family,
    kappa,
    scale,
    head_dim,
    n_keys,
    n,
    beta,
    lambda_sink,
    rho_0,
    meets_assumptions,
    premise_share,
    mean,
    bound,
    gap
FROM monte_carlo
UNPIVOT (
    (mean, bound, gap, holds) FOR inequality IN (
        (precision, precision_lower, precision_gap, precision_holds) AS 'precision_lower',
        (recall, recall_lower, recall_gap, recall_holds) AS 'recall_lower',
        (precision, precision_upper, precision_upper_gap, precision_upper_holds) AS 'precision_upper',
        (recall, recall_upper, recall_upper_gap, recall_upper_holds) AS 'recall_upper'
    )
)
WHERE study = $study AND NOT holds
ORDER BY gap, inequality, family, kappa, scale, head_dim, n_keys, n, beta, lambda_sink, rho_0
LIMIT 100
