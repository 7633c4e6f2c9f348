-- grain:   one row per (study, sequence, query, layer, kv_head)
-- inputs:  metrics store
-- meaning: C, the length of a typical value state (Assumption 1), which makes bounds independent of the unit of the
--          values; the median over the keys of this sequence and query only, by which the weighted norms behind the
--          upper bounds of this sequence and query were divided (scale 'unit'), not one number for the whole study
-- rows:    sequences * kv_head_queries
CREATE TABLE value_scales (
{{ key_columns("study", "sequence", "query", "layer", "kv_head") }}
    value_scale FLOAT, -- {{ stored.value_scale.describe() }} [0, inf)
    rho_0 FLOAT -- {{ stored.rho_0_of_keys.describe() }} [-1, 1]
)
