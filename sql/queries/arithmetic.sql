-- grain:   one row per arithmetic
-- inputs:  arithmetic; $study
-- meaning: error of plain floating-point arithmetic, mean over the heads examined
SELECT
    arithmetic,
    any_value(query) AS query,
    count(*) AS heads,
    any_value(sequences) AS sequences,
    avg(recall_differs) AS recall_differs,
    avg(precision_differs) AS precision_differs,
    avg(recall_difference) AS recall_difference,
    avg(precision_difference) AS precision_difference,
    avg(recall_at_4) AS recall_at_4,
    avg(precision_at_4) AS precision_at_4,
    avg(recall_difference_at_4) AS recall_difference_at_4,
    avg(precision_difference_at_4) AS precision_difference_at_4
FROM arithmetic
WHERE study = $study
GROUP BY arithmetic
ORDER BY arithmetic
