-- grain:   one row per n
-- inputs:  distinguishable_share, distinguishable_share_model, log_grid; $study, $query
-- meaning: share of the selected keys that are distinguishable, from N = 2 on: of the model, with 10 % and 90 %
--          quantiles of heads, the share of heads within the reported band, and the ends of that band
WITH grid AS (
    FROM log_grid((SELECT max(n) FROM distinguishable_share_model WHERE study = $study AND query = $query), points := 48)
),
of_heads AS (
    SELECT
        n,
        quantile_cont(share, 0.1) AS p10,
        quantile_cont(share, 0.9) AS p90,
        avg(within_band::INTEGER) AS heads_within
    FROM distinguishable_share
    WHERE study = $study AND query = $query
    GROUP BY n
)
SELECT n, heads, sequences, share, low, high, p10, p90, band_low, band_high, within_band, heads_within
FROM distinguishable_share_model
SEMI JOIN grid ON n = point
JOIN of_heads USING (n)
WHERE study = $study AND query = $query AND n > 1
ORDER BY n
