-- grain:   one row per (query, n)
-- inputs:  distinguishable_share, distinguishable_share_model; $study
-- meaning: Does the share of distinguishable selected keys settle at 0.70-0.85, on average, and in how many heads?
WITH of_heads AS (
    FROM distinguishable_share
    SELECT study, query, n, avg(within_band::INTEGER) AS heads_within, quantile_cont(share, [0.1, 0.5, 0.9]) AS deciles
    GROUP BY ALL
)
FROM distinguishable_share_model
JOIN of_heads USING (study, query, n)
SELECT query, n, share, within_band, heads_within, deciles[1] AS p10, deciles[2] AS median, deciles[3] AS p90
WHERE study = $study AND n > 1 AND n & (n - 1) = 0
ORDER BY query, n
