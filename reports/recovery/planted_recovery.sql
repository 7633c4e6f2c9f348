-- grain:   one row per (parameter, layer, kv_head, head); query and head are NULL for the parameters of value states
-- inputs:  planted_assumptions, assumption_norms, assumption_similarity, assumption_weights; $study, $query
-- meaning: the parameters from which a synthetic study was drawn, and the values that its fits found at one query; β
--          from the form that the criterion prefers; fitted is NULL if the preferred variant has no such parameter
WITH compared AS (
    SELECT
        planted.query, planted.layer, planted.kv_head, planted.head,
        unnest([
            {'parameter': 'C', 'planted': planted.c, 'fitted': norms.c, 'low': c_low, 'high': c_high},
            {'parameter': 'lambda', 'planted': planted.lambda_sink, 'fitted': norms.lambda_sink, 'low': lambda_sink_low, 'high': lambda_sink_high},
            {
                'parameter': 'beta',
                'planted': planted.beta,
                'fitted': CASE preferred WHEN 'floor' THEN beta_floor ELSE similarity.beta END,
                'low': CASE preferred WHEN 'floor' THEN beta_floor_low ELSE beta_low END,
                'high': CASE preferred WHEN 'floor' THEN beta_floor_high ELSE beta_high END
            },
            {'parameter': 'rho_0', 'planted': planted.rho_0, 'fitted': similarity.rho_0, 'low': rho_0_low, 'high': rho_0_high},
            {'parameter': 'p_sink', 'planted': planted.p_sink, 'fitted': fits.p_sink, 'low': p_sink_low, 'high': p_sink_high},
            {'parameter': 'p_base', 'planted': planted.p_base, 'fitted': fits.p_base, 'low': p_base_low, 'high': p_base_high},
            {'parameter': 'eta', 'planted': planted.eta, 'fitted': fits.eta, 'low': eta_low, 'high': eta_high},
            {
                'parameter': 'eta_growth',
                'planted': planted.eta_growth,
                'fitted': fits.eta_growth,
                'low': eta_growth_low,
                'high': eta_growth_high
            },
            {'parameter': 'omega', 'planted': planted.omega, 'fitted': fits.omega, 'low': omega_low, 'high': omega_high},
            {'parameter': 'T_1', 'planted': planted.t_1, 'fitted': fits.t_1, 'low': NULL, 'high': NULL},
            {'parameter': 'T_2', 'planted': planted.t_2, 'fitted': fits.t_2, 'low': NULL, 'high': NULL}
        ], recursive := true)
    FROM planted_assumptions AS planted
    LEFT JOIN assumption_norms AS norms USING (study, layer, kv_head)
    LEFT JOIN assumption_similarity AS similarity USING (study, layer, kv_head)
    LEFT JOIN assumption_weights AS fits USING (study, query, layer, head)
    WHERE study = $study AND query = $query
)
SELECT DISTINCT
    parameter,
    CASE WHEN parameter NOT IN ('C', 'lambda', 'beta', 'rho_0') THEN query END AS query,
    layer, kv_head,
    CASE WHEN parameter NOT IN ('C', 'lambda', 'beta', 'rho_0') THEN head END AS head,
    planted, fitted,
    fitted - planted AS difference,
    low, high
FROM compared
ORDER BY
    list_position(
        ['C', 'lambda', 'beta', 'rho_0', 'p_sink', 'p_base', 'eta', 'eta_growth', 'omega', 'T_1', 'T_2'], parameter
    ),
    layer, kv_head, head
