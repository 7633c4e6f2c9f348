-- grain:   one row per (study, sequence, query, layer, kv_head)
-- inputs:  metrics store
-- meaning: C, the length of a typical value state (Assumption 1), which makes the bounds free of the unit of the values
CREATE TABLE value_scales (
    study VARCHAR NOT NULL, -- name of the study
    sequence INTEGER NOT NULL, -- sequence, from 0
    query INTEGER NOT NULL, -- position of the query in its sequence
    layer SMALLINT NOT NULL, -- layer, from 0
    kv_head SMALLINT NOT NULL, -- KV head, from 0
    value_scale FLOAT -- median norm over the keys attended to but the sink, in model units; NULL if there are none
)
