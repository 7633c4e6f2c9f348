-- grain:   {{ "one row per study" if model else "one row per (study, layer, kv_head)" }}
-- inputs:  cosine_by_distance, sink_similarity
{% if model %}
-- meaning: Assumption 2 for the whole model: the same fits of the mean cosine over all KV heads
{% else %}
-- meaning: Assumption 2, similarity of value states: fits of the mean cosine against distance, and ρ_0 (Figure 3)
{% endif %}
CREATE TABLE assumption_similarity{{ "_model" if model }} (
{{ key_columns("study") }}
{% if model %}
    kv_heads INTEGER NOT NULL, -- number of KV heads averaged
{% else %}
{{ key_columns("layer", "kv_head") }}
{% endif %}
{{ key_columns("sequences") }}
    status VARCHAR NOT NULL, -- of beta: 'ok', 'constant' (0); if NULL 'too_short', 'undefined', 'unbounded'
    status_floor VARCHAR NOT NULL, -- of beta_floor and floor: the same values, or 'out_of_domain'; 'unbounded': floor is known
    distances INTEGER NOT NULL, -- number of distances fitted
    effective_points DOUBLE, -- number of independent distances that these are equivalent to, from the autocorrelation of the residuals
    beta DOUBLE, -- β of exp(-β k), least squares over distances k
    beta_se DOUBLE, -- its standard error over sequences; NULL for one sequence
    mae DOUBLE, -- mean absolute error of that fit, as a cosine (Figure 3)
    bic DOUBLE, -- its Bayesian information criterion, for effective_points points; smaller is better
    beta_floor DOUBLE, -- β of c + (1 - c) exp(-β k), the same fit with a floor
    beta_floor_se DOUBLE, -- its standard error over sequences
    floor DOUBLE, -- c, the cosine that remains at large distance
    floor_se DOUBLE, -- its standard error over sequences
    mae_floor DOUBLE, -- mean absolute error of the fit with a floor
    bic_floor DOUBLE, -- its Bayesian information criterion
    preferred VARCHAR, -- 'exponential' or 'floor', whichever has the smaller criterion
    rho_0 DOUBLE, -- ρ_0, mean cosine of the sink's value state with the others; NULL if the sink's has norm 0
    rho_0_sd DOUBLE, -- its standard deviation over positions within a sequence, mean over sequences
    rho_0_se DOUBLE -- its standard error over sequences; NULL for one sequence
)
