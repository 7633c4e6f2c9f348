-- grain:   one row per (study, parameter)
-- inputs:  heads drawn from Assumptions 1-3 with the parameters fitted to the study
-- meaning: Table 1: how the printed lower bounds change when one parameter moves from low to high and the others are
--          fixed; β and d are fixed at larger values than the study's if Δ > 0 holds at no N for these
CREATE TABLE parameter_effects (
{{ key_columns("study") }}
    parameter VARCHAR NOT NULL, -- 'd', 'L', 'N', 'a_0', 'a_min_in', 'a_max_out', 'beta', 'eta', 'omega', 'T_1' or 'T_2'
    n INTEGER NOT NULL, -- N at which the bounds are computed (for parameter 'N' it varies from low to high)
    kappa DOUBLE NOT NULL, -- κ of the bounds
    scale VARCHAR NOT NULL, -- scale of the bounds
    draws INTEGER NOT NULL, -- number of heads drawn
    base DOUBLE, -- value of the parameter while others change; a factor for a_0, a_min_in and a_max_out [-inf, inf]
    low DOUBLE, -- smaller value of the parameter; for a_0, a_min_in and a_max_out a factor [-inf, inf]
    high DOUBLE, -- larger value [-inf, inf]
{% for metric, end in (("precision", "low"), ("precision", "high"), ("recall", "low"), ("recall", "high")) %}
    {{ metric }}_lower_{{ end }} DOUBLE, -- mean lower bound of {{ metric.title() }} at {{ end }}
{% endfor %}
    log_miss_low DOUBLE, -- mean log of the sum that eq. 12 and 14 subtract, at low; it decides the effect where the bounds saturate
    log_miss_high DOUBLE, -- the same at high
    effect SMALLINT, -- sign of the change of the lower bounds: 1 improves, -1 weakens, 0 none; NULL: nothing changed
    untested VARCHAR, -- why the study does not test the parameter: its term is absent from the bounds, or trivial; NULL if it does
    paper_effect SMALLINT, -- the paper's arrow: 1, -1, or NULL if it says mixed
    agrees BOOLEAN -- whether both signs are the same; NULL if the paper says mixed or the parameter is not tested
)
