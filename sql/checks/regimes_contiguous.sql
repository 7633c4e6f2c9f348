-- grain:   one row per (sequence, query, layer, head) whose regimes do not cover 1 to n_keys - 1 once
-- inputs:  regimes_by_sequence, assumption_weights, attention_rows
-- meaning: in every sequence, every head with a fit and two keys has regimes in order, the first from N = 1, each
--          starting where the one before ends, the last up to n_keys - 1; no other head has any
WITH expected AS (
    SELECT sequence, query, layer, head, n_keys - 1 AS last_n
    FROM attention_rows
    SEMI JOIN (FROM assumption_weights WHERE status = 'ok') USING (study, query, layer, head)
    WHERE study = $study AND n_keys > 1
),
in_order AS (
    SELECT
        *,
        coalesce(lag(last_n) OVER regimes, 0) AS before,
        coalesce(lag(regime) OVER regimes, '') AS regime_before
    FROM regimes_by_sequence
    WHERE study = $study
    WINDOW regimes AS (PARTITION BY sequence, query, layer, head ORDER BY first_n, last_n)
),
actual AS (
    SELECT
        sequence, query, layer, head,
        max(last_n) AS last_n,
        bool_and(
            first_n = before + 1
            AND last_n >= first_n
            AND coalesce(list_position(['', 'I', 'II', 'III', 'IV', 'V'], regime), 0)
            > list_position(['', 'I', 'II', 'III', 'IV', 'V'], regime_before)
        ) AS contiguous
    FROM in_order
    GROUP BY sequence, query, layer, head
)
SELECT
    sequence, query, layer, head, contiguous, actual.last_n,
    expected.last_n AS expected_last_n
FROM actual
FULL JOIN expected USING (sequence, query, layer, head)
WHERE actual.last_n IS DISTINCT FROM expected.last_n OR NOT contiguous
