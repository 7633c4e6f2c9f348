-- grain:   one row per (study, sequence)
-- inputs:  weights of the tensor store
-- meaning: the fit of assumption_weights_model at the last query without one sequence, from which intervals follow
--          (jackknife); no rows for one sequence
CREATE TABLE assumption_weights_by_sequence (
{{ key_columns("study", "sequence") }}
    p_sink DOUBLE, -- mean weight of the sink [0, 1]
    p_base DOUBLE, -- weight of one key on the plateau [0, inf)
    r2_log DOUBLE, -- share of the variance of log weight that the fit explains (-inf, 1]
    oscillation DOUBLE -- as in assumption_weights_model
)
