-- grain:   one row per arithmetic
-- inputs:  arithmetic; $study
-- meaning: How far off would Recall and Precision be if distances were computed as the formulas stand?
FROM arithmetic
SELECT arithmetic, count(*) AS heads, avg(COLUMNS('^(recall|precision)_(differs|difference|difference_at_4)$'))
WHERE study = $study
GROUP BY arithmetic
ORDER BY arithmetic
