-- grain:   one row per (study, layer, kv_head, position)
-- inputs:  value norms of the metrics store
-- meaning: norm of the value states at each position, over sequences (Figure 2 left)
-- rows:    kv_heads * positions
CREATE TABLE value_norm_by_position (
{{ key_columns("study", "layer", "kv_head") }}
    position INTEGER NOT NULL, -- position in the sequence; 0 is the sink
{{ key_columns("sequences") }}
    mean_norm FLOAT NOT NULL -- mean norm over sequences, in model units [0, inf)
)
