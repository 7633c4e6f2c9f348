-- grain:   one row per (family, kappa, scale, head_dim, n_keys, n, beta)
-- inputs:  monte_carlo; $study
-- meaning: smallest difference, over λ and ρ_0, of the mean over draws from the mean lower bound; gap: negative if the
--          inequality fails; holds: at every λ and ρ_0; points: pairs of λ and ρ_0
SELECT
    family, kappa, scale, head_dim, n_keys, n, beta,
    count(*) AS points,
    bool_and(meets_assumptions) AS meets_assumptions,
    min(precision_gap) AS precision_gap,
    bool_and(precision_holds) AS precision_holds,
    min(recall_gap) AS recall_gap,
    bool_and(recall_holds) AS recall_holds
FROM monte_carlo
WHERE study = $study
GROUP BY ALL
ORDER BY family, kappa, scale, head_dim, n_keys, n, beta
