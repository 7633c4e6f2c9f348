-- grain:   one row per layer
-- inputs:  elbows, last_query; $study
-- meaning: At which N does the harmonic mean of Precision and Recall bend, layer by layer: the median head, both quartiles, and heads without an
--          elbow?
FROM elbows
SELECT
    layer,
    count(*) AS heads,
    count(*) FILTER (WHERE elbow_n IS NULL) AS without,
    quantile_disc(elbow_n, [0.25, 0.5, 0.75]) AS quartiles
WHERE study = $study AND query = last_query($study)
GROUP BY layer
ORDER BY layer
