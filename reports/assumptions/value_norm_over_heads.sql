-- grain:   one row per run of positions (first_position to last_position)
-- inputs:  values_by_position; $study
-- meaning: each KV head's mean norm of values over sequences, then mean and quantiles over heads (Figure 2 left); runs:
--          position 0 is a run of its own, later positions share a run if they differ by less than 5 %; p10, p90: 10 %
--          and 90 % quantile over KV heads; norms in model units
WITH by_head AS (
    SELECT
        CASE WHEN position = 0 THEN -1 ELSE floor(ln(position) / ln(1.05)) END AS run,
        layer, kv_head,
        min(position) AS first_position,
        max(position) AS last_position,
        avg(mean_norm) AS norm
    FROM values_by_position
    WHERE study = $study
    GROUP BY run, layer, kv_head
)
SELECT
    min(first_position) AS first_position,
    max(last_position) AS last_position,
    count(*) AS kv_heads,
    avg(norm) AS mean,
    quantile_cont(norm, 0.1) AS p10,
    quantile_cont(norm, 0.9) AS p90
FROM by_head
GROUP BY run
ORDER BY run
