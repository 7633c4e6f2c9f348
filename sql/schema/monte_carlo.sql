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
{% for metric in ("precision", "recall") %}
    {{ metric }} DOUBLE NOT NULL, -- mean {{ metrics[metric] }} over draws
    {{ metric }}_se DOUBLE NOT NULL, -- its standard error
    {{ metric }}_lower DOUBLE, -- mean lower bound
    {{ metric }}_upper DOUBLE, -- mean upper bound; NULL for the scale-free family
    {{ metric }}_lower_share DOUBLE, -- share of draws whose {{ metric.title() }} is at least their lower bound
    {{ metric }}_upper_share DOUBLE, -- share of draws whose {{ metric.title() }} is at most their upper bound
    {{ metric }}_gap DOUBLE, -- mean {{ metric.title() }} minus mean lower bound; negative: the inequality fails by this amount
    {{ metric }}_upper_gap DOUBLE, -- mean upper bound minus mean {{ metric.title() }}; negative: the inequality fails by this amount
    {{ metric }}_holds BOOLEAN, -- whether {{ metric }}_gap is above minus three standard errors
    {{ metric }}_upper_holds BOOLEAN{{ "," if not loop.last }} -- whether {{ metric }}_upper_gap is above minus three standard errors
{% endfor %}
)
