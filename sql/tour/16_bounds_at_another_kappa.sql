-- grain:   one row per n: 2, 4, 8, 16 or 32
-- inputs:  bounds_at, last_query; $study
-- meaning: At κ = 0.2, which need not be a κ of the study: how far below the means are the lower bounds?
FROM bounds_at(0.2)
SELECT
    n,
    count(precision_lower) AS bounded_heads,
    avg(premise_share) AS premise_share,
    avg(precision) AS precision,
    avg(precision_lower) AS precision_lower,
    avg(recall) AS recall,
    avg(recall_lower) AS recall_lower,
    bool_and(precision_holds AND recall_holds) AS hold
WHERE study = $study AND query = last_query($study) AND n IN (2, 4, 8, 16, 32)
GROUP BY n
ORDER BY n
