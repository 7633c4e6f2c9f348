-- grain:   one row per (study, layer, kv_head)
-- inputs:  value states of the tensor store
-- meaning: how many directions a head's value states use: principal directions of their unit vectors, without the
--          sink's, about the origin and over all sequences (Figure 9)
-- rows:    kv_heads
CREATE TABLE principal_directions (
{{ key_columns("study", "layer", "kv_head") }}
    sequences INTEGER NOT NULL, -- number of sequences
    status VARCHAR NOT NULL, -- 'ok', or 'zero': all value states but the sink's have norm 0
    share_1 DOUBLE, -- share of the squared length along the first principal direction; shares of all directions sum to 1 [0, 1]
    share_2 DOUBLE, -- along the second; 0 if values have one component [0, 1]
    share_3 DOUBLE, -- along the third; 0 if values have two components or fewer [0, 1]
    effective_dimension DOUBLE -- 1 / sum of the squared shares (participation ratio), from 1 to head_dim [1, inf)
)
