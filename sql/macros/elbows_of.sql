-- grain:   one row per (query, layer, head) of the curves
-- inputs:  a relation with the columns query, layer, head, n, precision, recall
-- meaning: the elbow of each curve of separability, 2PR / (P + R), from N = 2 to its lowest value: the smallest N at
--          which it lies highest above the straight line between these two points over ln N (the knee of Satopää et
--          al., "Finding a Kneedle in a Haystack", 2011, for a decreasing curve); N = 1 is trivial, since one key is
--          always separable; no elbow if N = 2 is the lowest, nor if the curve lies above the line by less than a tenth
--          of its fall: it then falls from N = 2 on without bending downwards
CREATE MACRO elbows_of(curves) AS TABLE
WITH separabilities AS (
    SELECT query, layer, head, n, 2 * precision * recall / (precision + recall) AS harmonic_mean
    FROM query_table(curves)
    WHERE n > 1
),
ends AS (
    SELECT
        query, layer, head,
        any_value(harmonic_mean) FILTER (WHERE n = 2) AS first_harmonic_mean,
        min(harmonic_mean) AS lowest_harmonic_mean,
        arg_min(n, (harmonic_mean, n)) AS lowest_n
    FROM separabilities
    GROUP BY query, layer, head
),
heights AS (
    SELECT
        query, layer, head, n, harmonic_mean,
        ln(n / 2) / ln(lowest_n / 2) AS x, -- exactly 0 and 1 at the ends, so that the height is exactly 0 there
        harmonic_mean - (lowest_harmonic_mean * x + first_harmonic_mean * (1 - x)) AS height
    FROM separabilities
    JOIN ends USING (query, layer, head)
    WHERE lowest_n > 2 AND n <= lowest_n
),
highest AS (
    SELECT
        query, layer, head,
        max(height) AS height,
        arg_max(n, (height, -n)) AS highest_n,
        arg_max(harmonic_mean, (height, -n)) AS highest_harmonic_mean
    FROM heights
    GROUP BY query, layer, head
)
SELECT
    query, layer, head,
    CASE
        WHEN height >= 0.1 * (first_harmonic_mean - lowest_harmonic_mean) THEN 'ok'
        WHEN lowest_n > 2 THEN 'no_bend'
        WHEN lowest_n = 2 THEN 'no_decline'
        ELSE 'trivial'
    END AS status,
    CASE WHEN status = 'ok' THEN highest_n END AS elbow_n,
    CASE WHEN status = 'ok' THEN highest_harmonic_mean END AS harmonic_mean,
    lowest_n, lowest_harmonic_mean
FROM (SELECT DISTINCT query, layer, head FROM query_table(curves))
LEFT JOIN ends USING (query, layer, head)
LEFT JOIN highest USING (query, layer, head)
