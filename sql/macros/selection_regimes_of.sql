-- grain:   one row per (query, layer, head, regime) of the fits
-- inputs:  relations of fits (query, layer, head, eta, omega, t_1, t_2), of weights (query, layer, head, position, weight)
--          and of margins (query, layer, head, n, margin)
-- meaning: Table 2: keys in order of weight, ties to the lower position; m_1 is the rank of the first peak, m_2 that of
--          the first valley or key of the plateau, m_3 that of the last key off the plateau; a regime begins no earlier
--          than the one before it, ends before the next and is left out if it has no N; without a peak, II runs up to m_2
CREATE MACRO selection_regimes_of(fits, weights, margins_by_n) AS TABLE
WITH ranked AS (
    SELECT
        query,
        layer,
        head,
        row_number() OVER (PARTITION BY query, layer, head ORDER BY weight DESC, position) AS n,
        CASE
            WHEN position = 0 THEN 'sink'
            WHEN position <= t_1 THEN 'plateau'
            WHEN position > t_2 THEN 'tail'
            WHEN eta * cos(omega * position) > 0 THEN 'peak'
            ELSE 'valley'
        END AS class
    FROM query_table(weights)
    JOIN query_table(fits) USING (query, layer, head)
),
ranks AS (
    SELECT
        query,
        layer,
        head,
        max(n) AS n_keys,
        min(n) FILTER (WHERE class = 'peak') AS first_peak,
        min(n) FILTER (WHERE class IN ('valley', 'plateau')) AS first_low,
        coalesce(max(n) FILTER (WHERE class <> 'plateau'), 1) AS last_high
    FROM ranked
    GROUP BY query, layer, head
),
starts AS (
    SELECT
        query,
        layer,
        head,
        n_keys,
        greatest(2, coalesce(first_peak, first_low, n_keys)) AS m_1,
        greatest(m_1, coalesce(first_low, n_keys)) AS m_2,
        greatest(m_2, last_high) AS m_3
    FROM ranks
    WHERE n_keys > 1
),
regimes AS (
    SELECT query, layer, head, unnest([
        {'regime': 'I', 'first_n': 1, 'next_n': 2},
        {'regime': 'II', 'first_n': 2, 'next_n': m_1},
        {'regime': 'III', 'first_n': m_1, 'next_n': m_2},
        {'regime': 'IV', 'first_n': m_2, 'next_n': m_3},
        {'regime': 'V', 'first_n': m_3, 'next_n': n_keys}
    ], recursive := true)
    FROM starts
),
ranges AS (
    SELECT query, layer, head, regime, first_n, next_n - 1 AS last_n
    FROM regimes
    WHERE first_n < next_n
)
SELECT
    ranges.*,
    any_value(margin) FILTER (WHERE n = first_n) AS margin_first,
    any_value(margin) FILTER (WHERE n = last_n) AS margin_last,
    CASE WHEN count(margin) > 1 THEN regr_slope(margin, ln(n) ORDER BY n) END AS slope,
    avg((margin > 0)::INTEGER) AS positive_share
FROM ranges
LEFT JOIN query_table(margins_by_n) AS by_n
    ON (by_n.query, by_n.layer, by_n.head) = (ranges.query, ranges.layer, ranges.head)
    AND n BETWEEN first_n AND last_n
GROUP BY ALL
