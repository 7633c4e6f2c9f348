-- grain:   one row per whole number of the grid
-- inputs:  the largest number
-- meaning: at most 161 whole numbers, evenly spaced on a log axis from 1 to the largest: where charts over N or over
--          distances have points; no row without a largest
CREATE MACRO log_grid(largest) AS TABLE
SELECT DISTINCT round(largest ** (step / 160))::INTEGER AS point
FROM generate_series(0, 160) AS steps (step)
WHERE largest IS NOT NULL
