-- grain:   one row per layer
-- inputs:  critical_n, last_query; $study
-- meaning: From which N on are selected keys no farther from the rest than random keys, and in how many heads at all?
FROM critical_n
SELECT
    layer,
    count(*) AS heads,
    count(critical_n) AS heads_that_meet,
    median(critical_n) AS median_n,
    min(critical_n) AS first_n,
    avg(critical_share) AS mean_share_of_keys,
WHERE study = $study AND query = last_query($study)
GROUP BY layer
ORDER BY layer
