-- grain:   one row per (study, sequence, layer, kv_head)
-- inputs:  value norms of the metrics store
-- meaning: the quantities of assumption_norms in one sequence
-- rows:    sequences * kv_heads
CREATE TABLE assumption_norms_by_sequence (
{{ key_columns("study", "sequence", "layer", "kv_head") }}
    c DOUBLE NOT NULL, -- median norm of the positions but the sink's, in model units [0, inf)
    lambda_sink DOUBLE, -- norm of the sink's value state over c; NULL if that is 0 [0, inf)
    cv_within_sequence DOUBLE, -- coefficient of variation over positions [0, inf)
    cv_without_sequence DOUBLE -- cv_of_expected_norm without this sequence; NULL for fewer than three [0, inf)
)
