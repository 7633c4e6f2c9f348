-- grain:   one row per (study, layer, kv_head)
-- inputs:  cosine_by_distance, sink_similarity
-- meaning: Assumption 2, similarity of value states: fits of the mean cosine against distance, and ρ_0 (Figure 3), of
--          every KV head, and of the mean cosine over all KV heads
-- rows:    kv_heads + 1
-- parts:   (FROM assumption_similarity UNION ALL BY NAME FROM assumption_similarity_model)
CREATE TABLE assumption_similarity (
{{ key_columns("study") }}
    layer SMALLINT, -- layer, from 0; NULL: the whole model
    kv_head SMALLINT, -- KV head, from 0; NULL: the whole model
    kv_heads INTEGER, -- number of KV heads averaged; NULL for one of them [1, inf)
{{ key_columns("sequences") }}
    status VARCHAR NOT NULL, -- of beta: 'ok', 'constant' (0); if NULL 'too_short', 'undefined', 'unbounded'
    status_floor VARCHAR NOT NULL, -- of beta_floor and floor: the same values, or 'out_of_domain'; 'unbounded': floor is known
    distances INTEGER NOT NULL, -- number of distances fitted [0, inf)
    effective_points DOUBLE, -- number of independent distances that these are equivalent to, from the autocorrelation of the residuals [1, inf)
{{ interval_columns("beta", "β of exp(-β k), least squares over distances k", "(-inf, inf)") }}
    mae DOUBLE, -- mean absolute error of that fit, as a cosine (Figure 3) [0, 2]
    bic DOUBLE, -- its Bayesian information criterion, for effective_points points; smaller is better
{{ interval_columns("beta_floor", "β of c + (1 - c) exp(-β k), the same fit with a floor", "(-inf, inf)") }}
{{ interval_columns("floor", "c, the cosine that remains at large distance", "(-inf, inf)") }}
    mae_floor DOUBLE, -- mean absolute error of the fit with a floor [0, 2]
    bic_floor DOUBLE, -- its Bayesian information criterion
    gain DOUBLE, -- by how much the criterion of the exponential is below that of the form with a floor and of a constant, for each effective point
    preferred VARCHAR, -- 'exponential' or 'floor', whichever has the smaller criterion
{{ interval_columns("rho_0", "ρ_0, mean cosine of the sink's value state with the others; NULL if the sink's has norm 0", "[-1, 1]") }}
    rho_0_sd DOUBLE -- its standard deviation over positions within a sequence, mean over sequences [0, 1]
)
