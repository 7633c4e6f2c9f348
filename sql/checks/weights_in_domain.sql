-- grain:   one row per fit of Assumption 3 with a parameter outside its domain, or inconsistent with its status or
--          variant
-- inputs:  assumption_weights
-- meaning: p_base > 0, -1 < eta < 1, 0 < omega <= π, 0 <= t_1 <= t_2 <= query, 0 <= p_sink <= 1, 1 <= effective_points
--          <= positions; a fit has all parameters of its variant and no others, a row without a fit has none;
--          eta_growth exists if keys are left to grow, t_2 < query; layer and head are NULL for the model
WITH fits AS (
    SELECT
        *,
        coalesce(status = 'ok', false) AS fitted,
        coalesce(variant IN ('tied', 'untied'), false) AS oscillates,
        coalesce(variant <> 'plateau' AND t_2 < query, false) AS grows
    FROM assumption_weights
    WHERE study = $study
)
SELECT query, layer, head, status, variant, p_sink, p_base, eta, eta_growth, omega, t_1, t_2
FROM fits
WHERE
    variant NOT IN ('plateau', 'growth', 'tied', 'untied')
    OR (variant IS NOT NULL) <> fitted
    OR (p_base IS NOT NULL) <> fitted
    OR (t_1 IS NOT NULL) <> fitted
    OR (t_2 IS NOT NULL) <> fitted
    OR (eta IS NOT NULL) <> oscillates
    OR (omega IS NOT NULL) <> oscillates
    OR (eta_growth IS NOT NULL) <> grows
    OR (variant = 'tied' AND eta <> eta_growth)
    OR NOT (effective_points <= positions)
    OR NOT abs(eta) < 1
    OR NOT (omega > 0 AND omega <= pi())
    OR NOT (0 <= t_1 AND t_1 <= t_2 AND t_2 <= query)
    OR (t_1 <> t_2 AND NOT oscillates)
    OR NOT (p_sink <= 1 + 1e-6)
