-- grain:   one row per arithmetic
-- inputs:  arithmetic; $study
-- meaning: How large would the errors of Recall and Precision be if distances were computed literally from the
--          formulas?
FROM arithmetic
SELECT arithmetic, count(*) AS heads, avg(COLUMNS('^(recall|precision)_(differs|difference|difference_at_4)$'))
WHERE study = $study
GROUP BY arithmetic
ORDER BY arithmetic
