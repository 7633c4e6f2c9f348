-- grain:   one row per measure, a column of query_heads
-- inputs:  query_heads, query_means; $study
-- meaning: the mean over heads of each measure at the last query, and over all queries that see 32 keys (the mean over
--          these of a sequence, then over sequences), with standard errors over sequences; difference: the last minus all,
--          paired by sequence; sequences_needed: those (two at least) of which all queries give the error of last; heads_apart: heads
--          whose last query differs from their others, the whole interval on one side of 0; about one in twenty would if
--          none did
WITH last AS (SELECT * FROM query_heads WHERE study = $study QUALIFY query = max(query) OVER ()),
of_heads AS (
    SELECT sequence, layer, head, avg(COLUMNS('_(level|keys|90|weight|norm|16)$')) AS '\0'
    FROM query_heads
    WHERE study = $study AND n_keys >= 32
    GROUP BY sequence, layer, head
),
of_all AS (
    UNPIVOT (SELECT sequence, avg(COLUMNS(* EXCLUDE (sequence, layer, head, n_keys))) AS '\0' FROM of_heads GROUP BY sequence)
    ON COLUMNS(* EXCLUDE sequence) INTO NAME measure VALUE value
),
of_last AS (
    UNPIVOT (
        SELECT sequence, avg(COLUMNS('_(level|keys|90|weight|norm|16)$')) AS '\0' FROM last WHERE n_keys >= 32 GROUP BY sequence
    )
    ON COLUMNS(* EXCLUDE sequence) INTO NAME measure VALUE value
),
told AS (
    SELECT
        measure,
        count(*) AS sequences,
        avg(of_last.value) AS last,
        stddev(of_last.value) / sqrt(count(*)) AS last_error,
        avg(of_all.value) AS every,
        stddev(of_all.value) / sqrt(count(*)) AS every_error,
        avg(of_last.value - of_all.value) AS difference,
        stddev(of_last.value - of_all.value) / sqrt(count(*)) AS difference_error
    FROM of_last
    JOIN of_all USING (sequence, measure)
    GROUP BY measure
)
SELECT
    told.*,
    greatest(2, ceil(told.sequences * (every_error / nullif(last_error, 0)) ** 2))::INTEGER AS sequences_needed,
    count(*) FILTER (last_difference_low > 0 OR last_difference_high < 0) AS heads_apart,
    count(last_difference_low) AS heads
FROM told
LEFT JOIN query_means ON query_means.measure = told.measure AND study = $study
GROUP BY ALL
ORDER BY measure
