-- grain:   one row per n, for the powers of four that the study reaches and its largest n
-- inputs:  selection, selection_counts; $study
-- meaning: mean Precision, Recall and F over all selections of that n at the last query
WITH reach AS (
    SELECT query, max(n) AS last_n
    FROM selection_counts
    WHERE study = $study
    GROUP BY query
    ORDER BY query DESC
    LIMIT 1
)
SELECT
    n AS "N",
    round(avg(precision), 3) AS precision,
    round(avg(recall), 3) AS recall,
    round(avg(f_r_max), 3) AS f_r_max,
    round(avg(f_r_min), 3) AS f_r_min,
    count(*) AS selections
FROM selection
WHERE
    study = $study
    AND query = (SELECT query FROM reach)
    AND (n IN (1, 4, 16, 64, 256, 1024, 4096, 16384) OR n = (SELECT last_n FROM reach))
GROUP BY n
ORDER BY n
