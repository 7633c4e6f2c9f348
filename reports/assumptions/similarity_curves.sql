-- grain:   one row per (which, distance); which is best, median, worst (KV head by the exponential's error) or model
-- inputs:  assumption_similarity, cosine_by_distance, decay, log_grid; $study
-- meaning: mean cosine against distance with both fits, for the KV heads where the exponential fits best, middling and
--          worst, and over all KV heads (Figure 3); distance: at most 161 values, evenly spaced on a log axis; layer,
--          kv_head: NULL for the model; exponential, with_floor: NULL without such a fit
WITH ordered AS (
    SELECT *, row_number() OVER (ORDER BY mae, layer, kv_head) AS place, count(*) OVER () AS places
    FROM assumption_similarity
    WHERE study = $study AND layer IS NOT NULL AND mae IS NOT NULL
),
chosen AS (
    SELECT which, ordered.*
    FROM ordered
    JOIN (VALUES ('best'), ('median'), ('worst')) AS named (which)
        ON place = CASE which WHEN 'best' THEN 1 WHEN 'median' THEN (places + 1) // 2 ELSE places END
    UNION ALL BY NAME
    SELECT 'model' AS which, *
    FROM assumption_similarity
    WHERE study = $study AND layer IS NULL
),
measured AS (
    SELECT layer, kv_head, distance, avg(mean_cosine) AS mean_cosine
    FROM cosine_by_distance
    WHERE study = $study
    GROUP BY GROUPING SETS ((layer, kv_head, distance), (distance))
)
SELECT
    which, chosen.layer, chosen.kv_head, distance, mean_cosine,
    decay(distance, status, beta, 0) AS exponential,
    decay(distance, status_floor, beta_floor, floor) AS with_floor
FROM chosen
JOIN measured
    ON chosen.layer IS NOT DISTINCT FROM measured.layer AND chosen.kv_head IS NOT DISTINCT FROM measured.kv_head
SEMI JOIN log_grid((SELECT max(distance) FROM measured)) AS grid ON distance = point
ORDER BY which, distance
