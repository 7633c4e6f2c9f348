-- grain:   one row per (study, query, layer, head)
-- inputs:  attention_by_position
-- meaning: Assumption 3, the four phases of mean attention weight by position, fitted to its logarithm (Figure 4), of
--          every head, and of the mean weight over all heads that see a position
-- rows:    all_head_queries + queries
-- parts:   (FROM assumption_weights UNION ALL BY NAME FROM assumption_weights_model)
CREATE TABLE assumption_weights (
{{ key_columns("study", "query") }}
    layer SMALLINT, -- layer, from 0; NULL: the whole model
    head SMALLINT, -- query head, from 0; NULL: the whole model
    heads INTEGER, -- number of heads averaged; NULL for one of them [1, inf)
{{ key_columns("sequences") }}
    status VARCHAR NOT NULL, -- 'ok'; without a fit, parameters NULL: 'too_short', 'no_weight', 'undefined'
    positions INTEGER NOT NULL, -- number of positions fitted: those after the sink whose mean weight is above 0 [0, inf)
    effective_points DOUBLE, -- number of independent positions that these are equivalent to, from the autocorrelation of the residuals [1, inf)
    zero_positions INTEGER NOT NULL, -- positions left out because their mean weight is 0 [0, inf)
    variant VARCHAR, -- the best by BIC: 'plateau', 'growth' (T_1 = T_2), 'tied' (one η, as printed) or 'untied'
{{ interval_columns("p_sink", "mean weight of the sink; NULL if a window hides it", "[0, inf)") }}
{{ interval_columns("p_base", "weight of one key on the plateau", "(0, inf)") }}
{{ interval_columns("eta", "η of the oscillation; NULL without one", "(-inf, inf)") }}
{{ interval_columns("eta_growth", "η of the growth, per position; equal to eta if tied; NULL without growth", "(-inf, inf)") }}
{{ interval_columns("omega", "ω of the oscillation, in radians per position; NULL without one", "(-inf, inf)") }}
    t_1 INTEGER, -- T_1, last position of the plateau [0, inf)
    t_2 INTEGER, -- T_2, last position before the growth; equal to t_1 without oscillation [0, inf)
    bic_plateau DOUBLE, -- Bayesian information criterion of the plateau alone, for effective_points points; smaller is better
    bic_growth DOUBLE, -- the same of the growth without oscillation
    bic_tied DOUBLE, -- the same of the four phases with one η
    bic_untied DOUBLE, -- the same of the four phases with a separate η for oscillation and growth
    oscillation DOUBLE, -- by how much the best criterion with an oscillation is below the best without one, for each of effective_points
    r2_log DOUBLE, -- share of the variance of log weight that the fit explains (-inf, 1]
    mae_log DOUBLE -- mean absolute error of log weight (natural logarithm) [0, inf)
)
