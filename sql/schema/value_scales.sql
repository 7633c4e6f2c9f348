-- grain:   one row per (study, sequence, query, layer, kv_head)
-- inputs:  metrics store
-- meaning: C, the length of a typical value state (Assumption 1), which makes bounds free of the unit of the values;
--          the median over the keys of this sequence and query alone, by which the weighted norms behind the upper
--          bounds of this sequence and query were divided (scale 'unit'), not one number for the whole study
CREATE TABLE value_scales (
    study VARCHAR NOT NULL, -- name of the study
    sequence INTEGER NOT NULL, -- sequence, from 0
    query INTEGER NOT NULL, -- position of the query in its sequence
    layer SMALLINT NOT NULL, -- layer, from 0
    kv_head SMALLINT NOT NULL, -- KV head, from 0
    value_scale FLOAT, -- median norm over this query's own keys but the sink, in model units; NULL if there are none
    rho_0 FLOAT -- ρ_0, mean cosine of the sink's value state with this query's other keys; NULL if hidden or of norm 0
)
