-- grain:   one row per (study, head_dim, n_keys, n, beta, lambda_sink, rho_0, family, kappa, scale)
-- inputs:  the study's grid (analysis.monte_carlo); heads drawn from Assumptions 1-3
-- meaning: the bounds in expectation: means over draws, the share of draws that lie within the bounds, and where an
--          inequality fails
CREATE TABLE monte_carlo (
{{ key_columns("study") }}
    head_dim INTEGER NOT NULL, -- d, length of one value state
    n_keys INTEGER NOT NULL, -- number of keys, the sink included (L + 1)
{{ key_columns("n") }}
    beta DOUBLE NOT NULL, -- β of the cosines exp(-β |i - j|); infinity: independent directions [0, inf]
    lambda_sink DOUBLE NOT NULL, -- λ, norm of the sink's value state over C
    rho_0 DOUBLE NOT NULL, -- ρ_0, cosine of the sink's value state with each of the others
    family VARCHAR NOT NULL, -- 'printed', 'scale_free', or 'correlated': Gaussian directions with β and ρ_0
    kappa DOUBLE, -- κ of the printed bounds
    scale VARCHAR, -- scale of the printed bounds
    draws INTEGER NOT NULL, -- number of heads drawn
    premise_share DOUBLE, -- share of draws with Δ > 0; NULL for the scale-free family
    meets_assumptions BOOLEAN NOT NULL, -- whether the family's own assumptions hold at this point
    precision DOUBLE NOT NULL, -- mean Precision P(r_max, N) over draws
    precision_se DOUBLE NOT NULL, -- its standard error
    precision_lower DOUBLE, -- mean lower bound
    precision_upper DOUBLE, -- mean upper bound; NULL for the scale-free family
    precision_lower_share DOUBLE, -- share of draws whose Precision is at least their lower bound
    precision_upper_share DOUBLE, -- share of draws whose Precision is at most their upper bound
    precision_gap DOUBLE, -- mean Precision minus mean lower bound; negative: the inequality fails by this amount
    precision_upper_gap DOUBLE, -- mean upper bound minus mean Precision; negative: the inequality fails by this amount
    precision_holds BOOLEAN, -- whether precision_gap is above minus three standard errors
    precision_upper_holds BOOLEAN, -- whether precision_upper_gap is above minus three standard errors
    recall DOUBLE NOT NULL, -- mean Recall R(r_min, N) over draws
    recall_se DOUBLE NOT NULL, -- its standard error
    recall_lower DOUBLE, -- mean lower bound
    recall_upper DOUBLE, -- mean upper bound; NULL for the scale-free family
    recall_lower_share DOUBLE, -- share of draws whose Recall is at least their lower bound
    recall_upper_share DOUBLE, -- share of draws whose Recall is at most their upper bound
    recall_gap DOUBLE, -- mean Recall minus mean lower bound; negative: the inequality fails by this amount
    recall_upper_gap DOUBLE, -- mean upper bound minus mean Recall; negative: the inequality fails by this amount
    recall_holds BOOLEAN, -- whether recall_gap is above minus three standard errors
    recall_upper_holds BOOLEAN -- whether recall_upper_gap is above minus three standard errors
)
