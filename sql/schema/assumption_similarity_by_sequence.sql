-- grain:   one row per (study, sequence, layer, kv_head)
-- inputs:  similarities of the metrics store
-- meaning: what each sequence contributes to the fits of assumption_similarity: jackknife pseudo-values to first order,
--          whose mean over sequences is the fit and whose spread gives its interval
-- rows:    sequences * kv_heads
CREATE TABLE assumption_similarity_by_sequence (
{{ key_columns("study", "sequence", "layer", "kv_head") }}
    mae DOUBLE, -- of the mean absolute error of the exponential
    floor DOUBLE, -- of the floor
    gain DOUBLE, -- of the amount by which the criterion of the exponential is below those of a floor and of a constant, for each effective point
    rho_0 DOUBLE -- ρ_0 of the sequence; NULL if the sink's value state has norm 0 [-1, 1]
)
