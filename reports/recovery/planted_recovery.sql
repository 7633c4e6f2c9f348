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
                'parameter': 'beta', 'planted': planted.beta,
                'fitted': if(preferred = 'floor', beta_floor, similarity.beta),
                'low': if(preferred = 'floor', beta_floor_low, beta_low),
                'high': if(preferred = 'floor', beta_floor_high, beta_high)
            },
{% for p in ("rho_0", "p_sink", "p_base", "eta", "eta_growth", "omega") %}
{% set fits = "similarity" if loop.first else "fits" %}
            {'parameter': '{{ p }}', 'planted': planted.{{ p }}, 'fitted': {{ fits }}.{{ p }}, 'low': {{ p }}_low, 'high': {{ p }}_high},
{% endfor %}
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
    list_position(['C', 'lambda', 'beta', 'rho_0', 'p_sink', 'p_base', 'eta', 'eta_growth', 'omega', 'T_1', 'T_2'], parameter),
    layer, kv_head, head
