-- grain:   one row per (study, sequence, layer, kv_head)
-- inputs:  metrics store
-- meaning: ρ_0, the mean cosine between the sink's value state and the others, sequence by sequence (Assumption 2)
-- rows:    sequences * kv_heads
CREATE TABLE sink_similarity (
{{ key_columns("study", "sequence", "layer", "kv_head") }}
    rho_0 FLOAT, -- mean cosine of the sink's value state with the others; NULL if it, or all others, have norm 0 [-1, 1]
    rho_0_sd FLOAT -- standard deviation of the cosine over the others (divisor: their number) [0, 1]
)
