-- grain:   one row per (study, query, layer, head, regime)
-- inputs:  assumption_weights, attention_by_position, bound_means, selection_regimes_of
-- meaning: Table 2 of every head with a fit; Δ/B is the same for every κ
WITH fits AS (
    SELECT query, layer, head, eta, omega, t_1, t_2
    FROM assumption_weights
    WHERE study = $study AND status = 'ok'
),
weights AS (
    SELECT query, layer, head, position, mean_weight AS weight
    FROM attention_by_position
    WHERE study = $study
),
margins_by_n AS (
    SELECT query, layer, head, n, any_value(margin) AS margin
    FROM bound_means
    WHERE study = $study AND family = 'printed'
    GROUP BY query, layer, head, n
)
SELECT $study AS study, *
FROM selection_regimes_of(fits, weights, margins_by_n)
