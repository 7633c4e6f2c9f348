-- grain:   {{ "one row per (study, query)" if model else "one row per (study, query, layer, head)" }}
-- inputs:  attention_by_position
{% if model %}
-- meaning: Assumption 3 for the whole model: the same fit of the mean weight over all heads that see a position
{% else %}
-- meaning: Assumption 3, the four phases of mean attention weight by position, fitted to its logarithm (Figure 4)
{% endif %}
CREATE TABLE assumption_weights{{ "_model" if model }} (
{{ key_columns("study", "query") }}
{% if model %}
    heads INTEGER NOT NULL, -- number of heads averaged
{% else %}
{{ key_columns("layer", "head") }}
{% endif %}
{{ key_columns("sequences") }}
    status VARCHAR NOT NULL, -- 'ok'; without a fit, parameters NULL: 'too_short', 'no_weight', 'undefined'
    positions INTEGER NOT NULL, -- number of positions fitted: those after the sink whose mean weight is above 0
    effective_points DOUBLE, -- number of independent positions that these are equivalent to, from the autocorrelation of the residuals
    zero_positions INTEGER NOT NULL, -- positions left out because their mean weight is 0
    variant VARCHAR, -- the best by BIC: 'plateau', 'growth' (T_1 = T_2), 'tied' (one η, as printed) or 'untied'
    p_sink DOUBLE, -- mean weight of the sink; NULL if a window hides it
    p_sink_se DOUBLE, -- its standard error over sequences; NULL for one sequence
    p_base DOUBLE, -- weight of one key on the plateau
    p_base_se DOUBLE, -- its standard error over sequences; NULL for one sequence
    eta DOUBLE, -- η of the oscillation; NULL without one
    eta_se DOUBLE, -- its standard error over sequences
    eta_growth DOUBLE, -- η of the growth, per position; equal to eta if tied; NULL without growth
    eta_growth_se DOUBLE, -- its standard error over sequences
    omega DOUBLE, -- ω of the oscillation, in radians per position; NULL without one
    omega_se DOUBLE, -- its standard error over sequences
    t_1 INTEGER, -- T_1, last position of the plateau
    t_2 INTEGER, -- T_2, last position before the growth; equal to t_1 without oscillation
    bic_plateau DOUBLE, -- Bayesian information criterion of the plateau alone, for effective_points points; smaller is better
    bic_growth DOUBLE, -- the same of the growth without oscillation
    bic_tied DOUBLE, -- the same of the four phases with one η
    bic_untied DOUBLE, -- the same of the four phases with a separate η for oscillation and growth
    r2_log DOUBLE, -- share of the variance of log weight that the fit explains
    mae_log DOUBLE -- mean absolute error of log weight (natural logarithm)
)
