-- grain:   one row per whole number of the grid
-- inputs:  the largest number, and the number of points at most
-- meaning: whole numbers (at most 161), evenly spaced on a log axis from 1 to the largest: the points of charts over N
--          or over distances; no rows if the largest is NULL
CREATE MACRO log_grid(largest, points := 161) AS TABLE
SELECT DISTINCT round(largest ** (step / (points - 1)))::INTEGER AS point
FROM generate_series(0, points - 1) AS steps (step)
WHERE largest IS NOT NULL
