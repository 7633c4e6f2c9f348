-- grain:   one row per temperature
-- inputs:  best_temperature, sensitivity_bounds, last_query; $study
-- meaning: At which temperature would most heads separate 16 keys best, and how close does the spectral norm come to
--          1/(2T) there?
FROM sensitivity_bounds AS bounds
LEFT JOIN best_temperature(16) AS best USING (study, query, layer, head, temperature)
SELECT
    temperature,
    count(best.n) AS heads_best_here,
    count(*) FILTER (WHERE best.gain_low > 0) AS gain_above_0,
    avg(best.gain) AS mean_gain_of_auc,
    avg(spectral_norm) AS spectral_norm,
    any_value(quarter) AS "1/(4T)",
    any_value(half) AS "1/(2T)",
    avg(quarter_holds) AS quarter_holds,
    max(closest) AS closest_to_half,
WHERE study = $study AND query = last_query($study)
GROUP BY temperature
ORDER BY temperature
