-- grain:   one row per (query, layer, head) whose regimes do not cover 1 to n_keys - 1 once
-- inputs:  selection_regimes, selection_regimes_model, assumption_weights, assumption_weights_model, attention_rows
-- meaning: every head with a fit and two keys has regimes in order, the first from N = 1, each from where the one before
--          ends, the last to n_keys - 1; and so has the model, whose layer and head are NULL
WITH reach AS (
    SELECT query, layer, head, max(n_keys) - 1 AS last_n
    FROM attention_rows
    WHERE study = $study
    GROUP BY GROUPING SETS ((query, layer, head), (query))
    HAVING max(n_keys) > 1
),
fits AS (
    SELECT study, query, layer, head
    FROM (FROM assumption_weights UNION ALL BY NAME FROM assumption_weights_model)
    WHERE study = $study AND status = 'ok'
),
wanted AS (
    SELECT reach.*
    FROM reach
    JOIN fits
        ON reach.query = fits.query
        AND reach.layer IS NOT DISTINCT FROM fits.layer
        AND reach.head IS NOT DISTINCT FROM fits.head
),
in_order AS (
    SELECT
        query,
        layer,
        head,
        regime,
        first_n,
        last_n,
        coalesce(lag(last_n) OVER regimes, 0) AS before,
        coalesce(lag(regime) OVER regimes, '') AS regime_before
    FROM (FROM selection_regimes UNION ALL BY NAME FROM selection_regimes_model)
    WHERE study = $study
    WINDOW regimes AS (PARTITION BY query, layer, head ORDER BY first_n, last_n)
),
found AS (
    SELECT
        query,
        layer,
        head,
        max(last_n) AS last_n,
        bool_and(
            first_n = before + 1
            AND last_n >= first_n
            AND coalesce(list_position(['', 'I', 'II', 'III', 'IV', 'V'], regime), 0)
            > list_position(['', 'I', 'II', 'III', 'IV', 'V'], regime_before)
        ) AS contiguous
    FROM in_order
    GROUP BY query, layer, head
)
SELECT
    coalesce(found.query, wanted.query) AS query,
    coalesce(found.layer, wanted.layer) AS layer,
    coalesce(found.head, wanted.head) AS head,
    contiguous,
    found.last_n,
    wanted.last_n AS expected
FROM found
FULL JOIN wanted
    ON found.query = wanted.query
    AND found.layer IS NOT DISTINCT FROM wanted.layer
    AND found.head IS NOT DISTINCT FROM wanted.head
WHERE found.last_n IS DISTINCT FROM wanted.last_n OR NOT contiguous
