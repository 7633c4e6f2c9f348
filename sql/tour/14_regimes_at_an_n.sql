-- grain:   one row per (regime, label)
-- inputs:  heads_by_regime, last_query; $study
-- meaning: In which regime of Table 2 are heads of each kind when they select eight keys, and how well do they select?
FROM heads_by_regime(8)
SELECT regime, label, count(*) AS heads, avg(slope) AS slope, avg(precision) AS precision, avg(recall) AS recall
WHERE study = $study AND query = last_query($study)
GROUP BY ALL
ORDER BY ALL
