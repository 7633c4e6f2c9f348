-- grain:   one row per (measure, temperature); measure is 'auc' or 'recall'
-- inputs:  best_temperature, temperature_means; $study, $query, $n
-- meaning: number of heads whose largest AUC or Recall is at each temperature of the grid, for $n selected keys or, if
--          the log grid lacks that, the next smaller number; gain_above_0: those whose gain over T = 1 has an interval
--          above 0
WITH best AS (
    SELECT 'auc' AS measure, *
    FROM best_temperature($n, 'auc')
    WHERE study = $study AND query = $query
    UNION ALL
    SELECT 'recall', *
    FROM best_temperature($n, 'recall')
    WHERE study = $study AND query = $query
)
SELECT
    measure, temperature,
    max(best.n) AS n,
    count(best.n) AS heads,
    count(*) FILTER (WHERE gain_low > 0) AS gain_above_0,
    avg(gain) AS mean_gain
FROM (SELECT DISTINCT measure FROM best)
CROSS JOIN (SELECT DISTINCT temperature FROM temperature_means WHERE study = $study AND query = $query)
LEFT JOIN best USING (measure, temperature)
GROUP BY measure, temperature
ORDER BY measure, temperature
