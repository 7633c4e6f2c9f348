-- grain:   one row per (study, query, regime)
-- inputs:  assumption_weights_model, attention_by_position, bound_means, selection_regimes_of
-- meaning: Table 2 of the whole model, as if it were one head with the mean weight and the mean Δ/B of all
WITH fits AS (
    SELECT query, 0 AS layer, 0 AS head, eta, omega, t_1, t_2
    FROM assumption_weights_model
    WHERE study = $study AND status = 'ok'
),
weights AS (
    SELECT query, 0 AS layer, 0 AS head, position, avg(mean_weight) AS weight
    FROM attention_by_position
    WHERE study = $study
    GROUP BY query, position
),
margins_by_n AS (
    SELECT query, 0 AS layer, 0 AS head, n, avg(margin) AS margin
    FROM bound_means
    WHERE study = $study AND family = 'printed'
    GROUP BY query, n
)
SELECT $study AS study, * EXCLUDE (layer, head)
FROM selection_regimes_of(fits, weights, margins_by_n)
