-- grain:   one row per run of positions (first_position to last_position)
-- inputs:  attention_by_position, run_of; $study, $query
-- meaning: each head's mean weight of a key over sequences, then mean and quantiles over heads, by position (Figure 4);
--          runs: position 0 and the query's own are runs of their own, the others are in at most 512 runs of equal
--          length; p10, p90: 10 % and 90 % quantile over heads; heads: those whose mask shows them the run;
--          seen_from: first position that all of these see
WITH by_head AS (
    SELECT
        run_of(position, $query) AS run,
        layer, head,
        min(position) AS first_position,
        max(position) AS last_position,
        avg(mean_weight) AS weight
    FROM attention_by_position
    WHERE study = $study AND query = $query
    GROUP BY run, layer, head
)
SELECT
    min(first_position) AS first_position,
    max(last_position) AS last_position,
    max(first_position) AS seen_from,
    count(*) AS heads,
    avg(weight) AS mean,
    quantile_cont(weight, 0.1) AS p10,
    quantile_cont(weight, 0.9) AS p90
FROM by_head
GROUP BY run
ORDER BY run
