-- grain:   one row per (place, measure); place is repeated, line_start or punctuation
-- inputs:  query_heads, tokens; $study
-- meaning: how much more (or less) the mean over heads of a measure is at the tokens of a place than at the other tokens
--          of a sequence, with its standard error over sequences. repeated: the token occurs earlier in its sequence, so
--          that there is something to match; line_start: the token before holds a line break; punctuation: no letter and
--          no digit. Queries see 32 keys; from each value the mean of the other sequences at its position is subtracted,
--          since places may be more frequent early or late; share: of the queries, those of the place
WITH of_queries AS (
    SELECT sequence, query, avg(COLUMNS('_(level|keys|90|weight|norm|16)$')) AS '\0'
    FROM query_heads
    WHERE study = $study AND n_keys >= 32
    GROUP BY sequence, query
),
measured AS (
    SELECT
        sequence, query, measure,
        (value - avg(value) OVER at_position) * count(*) OVER at_position / (count(*) OVER at_position - 1) AS value
    FROM (UNPIVOT of_queries ON COLUMNS(* EXCLUDE (sequence, query, n_keys)) INTO NAME measure VALUE value)
    WINDOW at_position AS (PARTITION BY measure, query)
    QUALIFY count(*) OVER at_position > 1
),
marked AS (
    SELECT
        sequence,
        position AS query,
        row_number() OVER (PARTITION BY sequence, token_id ORDER BY position) > 1 AS repeated,
        contains(lag(token) OVER (PARTITION BY sequence ORDER BY position), chr(10)) AS line_start,
        regexp_matches(token, '[[:punct:]]') AND NOT regexp_matches(token, '[[:alnum:]]') AS punctuation
    FROM tokens
    WHERE study = $study
),
places AS (UNPIVOT marked ON repeated, line_start, punctuation INTO NAME place VALUE inside),
apart AS (
    SELECT
        place, measure, sequence,
        avg(inside::INTEGER) AS share,
        avg(value) FILTER (inside) - avg(value) FILTER (NOT inside) AS difference
    FROM measured
    JOIN places USING (sequence, query)
    GROUP BY place, measure, sequence
)
SELECT
    place, measure,
    avg(share) AS share,
    count(difference) AS sequences,
    avg(difference) AS difference,
    stddev(difference) / sqrt(count(difference)) AS difference_error
FROM apart
GROUP BY place, measure
HAVING count(difference) > 0
ORDER BY place, measure
