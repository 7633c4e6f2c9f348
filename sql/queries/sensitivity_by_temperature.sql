-- grain:   one row per temperature
-- inputs:  sensitivity_bounds_model; $study, $query
-- meaning: spectral norm of the softmax Jacobian over sequences and heads at each temperature, and its bounds
SELECT * EXCLUDE (study, query)
FROM sensitivity_bounds_model
WHERE study = $study AND query = $query
ORDER BY temperature
