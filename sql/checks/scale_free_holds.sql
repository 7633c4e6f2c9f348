-- grain:   one row per grid point at which a scale-free bound fails although its assumptions hold
-- inputs:  monte_carlo
-- meaning: the scale-free lower bounds hold in expectation, within three standard errors, wherever directions are
--          independent; the printed ones are reported, not checked
SELECT head_dim, n_keys, n, beta, lambda_sink, rho_0, precision_gap, precision_se, recall_gap, recall_se
FROM monte_carlo
WHERE study = $study AND family = 'scale_free' AND meets_assumptions AND NOT (precision_holds AND recall_holds)
