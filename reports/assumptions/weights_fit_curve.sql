-- grain:   one row per run of positions (first_position to last_position)
-- inputs:  attention_by_position, assumption_weights_model, run_of, phase_weight; $study, $query
-- meaning: mean weight of a key over the heads that see it, and the four phases fitted to it (Figure 4); runs: position
--          0 and the query's own are runs of their own, the others are in at most 512 runs of equal length; fitted:
--          mean of the fitted weights of the run, NULL without a fit
WITH by_position AS (
    SELECT position, avg(mean_weight) AS weight
    FROM attention_by_position
    WHERE study = $study AND query = $query
    GROUP BY position
),
fit AS (FROM assumption_weights_model WHERE study = $study AND query = $query)
SELECT
    min(position) AS first_position,
    max(position) AS last_position,
    avg(weight) AS mean,
    avg(phase_weight(position, p_sink, p_base, eta, eta_growth, omega, t_1, t_2)) AS fitted
FROM by_position
LEFT JOIN fit ON true
GROUP BY run_of(position, $query)
ORDER BY first_position
