-- grain:   one row per elbow_n
-- inputs:  elbows; $study, $query
-- meaning: number of heads with their elbow at each N; elbow_n is NULL for those without one
SELECT elbow_n, count(*) AS heads
FROM elbows
WHERE study = $study AND query = $query
GROUP BY elbow_n
ORDER BY elbow_n
