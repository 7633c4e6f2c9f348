-- grain:   one row per measure
-- inputs:  convergence_fits_model; $study
-- meaning: exponents of the model's measures of convergence against the number of keys
SELECT measure, status, slope, slope_low, slope_high, r2, points, clusters
FROM convergence_fits_model
WHERE study = $study
ORDER BY measure
