-- grain:   one row per whole number of the grid
-- inputs:  the largest number, and how many at most
-- meaning: whole numbers (at most 161), evenly spaced on a log axis from 1 to the largest: where charts over N or over
--          distances have points; no row without a largest
CREATE MACRO log_grid(largest, points := 161) AS TABLE
SELECT DISTINCT round(largest ** (step / (points - 1)))::INTEGER AS point
FROM generate_series(0, points - 1) AS steps (step)
WHERE largest IS NOT NULL
