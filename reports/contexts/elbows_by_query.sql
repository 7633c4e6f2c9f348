-- grain:   one row per query
-- inputs:  elbows_model, elbows, keys_of_queries; $study
-- meaning: the elbow of the model and those of its heads at each context size; n_keys: largest number of keys of a
--          head; heads: number of heads with an elbow, over which the quartiles are taken
WITH of_heads AS (
    SELECT
        query,
        quantile_disc(elbow_n, 0.5) AS median_elbow_n,
        quantile_disc(elbow_n, 0.25) AS p25_elbow_n,
        quantile_disc(elbow_n, 0.75) AS p75_elbow_n,
        count(elbow_n) AS heads
    FROM elbows
    WHERE study = $study
    GROUP BY query
)
SELECT query, n_keys, elbow_n AS model_elbow_n, median_elbow_n, p25_elbow_n, p75_elbow_n, heads
FROM of_heads
JOIN elbows_model USING (query)
JOIN keys_of_queries($study) USING (query)
WHERE study = $study
ORDER BY query
