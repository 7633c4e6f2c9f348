-- grain:   one row per (query, layer, head, n) whose mean distances are not those of its selections
-- inputs:  distance_means, rest_distances
-- meaning: at every power of two, mean distances are the means of distance_rest and of the closed form for random
--          selections (up to rounding)
WITH selected AS (
    SELECT query, layer, head, n, avg(distance_rest::DOUBLE) AS distance, avg(random_distance) AS random_distance
    FROM rest_distances
    WHERE study = $study AND n & (n - 1) = 0
    GROUP BY query, layer, head, n
)
SELECT query, layer, head, n, means.distance, selected.distance, means.random_distance, selected.random_distance
FROM selected
LEFT JOIN (SELECT * FROM distance_means WHERE study = $study) AS means USING (query, layer, head, n)
WHERE NOT coalesce(
    abs(means.distance - selected.distance) <= 1e-6 * selected.distance + 1e-37
    AND abs(means.random_distance - selected.random_distance) <= 1e-6 * selected.random_distance + 1e-37,
    false
)
