-- grain:   one row per n, for the powers of four that the study reaches and its largest n
-- inputs:  selection_means_model; $study
-- meaning: mean Precision, Recall and F over all selections of that n at the last query
WITH means AS (FROM selection_means_model WHERE study = $study QUALIFY query = max(query) OVER ())
SELECT
    n AS "N",
    round(precision, 3) AS precision,
    round(recall, 3) AS recall,
    round(f_r_max, 3) AS f_r_max,
    round(f_r_min, 3) AS f_r_min,
    heads * sequences AS selections
FROM means
WHERE n IN (1, 4, 16, 64, 256, 1024, 4096, 16384) OR n = (SELECT max(n) FROM means)
ORDER BY n
