-- grain:   one row per (measure, axis, query or n)
-- inputs:  distance_fits_model; $study
-- meaning: exponents of the model's distances against N at each query, and against the number of keys at each N
SELECT measure, axis, query, n, status, slope, slope_low, slope_high, r2, points, clusters
FROM distance_fits_model
WHERE study = $study
ORDER BY measure, axis, query, n
