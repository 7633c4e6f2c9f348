-- grain:   one row per (measure, axis, query, n)
-- inputs:  limit_exponents; $study
-- meaning: powers of N and of the number of keys with which the model's distance and its closeness to uniform weights
--          change
SELECT * EXCLUDE (study)
FROM limit_exponents
WHERE study = $study AND exponent IS NOT NULL
ORDER BY measure, axis, query, n
