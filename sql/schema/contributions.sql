-- grain:   one row per (study, query, layer, head, position)
-- inputs:  weights of the tensor store, norms and cosines of the metrics store
-- meaning: contribution of each position to a head's output, ‖α_i v_i‖, over sequences, and the cosines of its value
--          state with those of the last token and of the sink (Figure 10); positions that a window hides have no row
-- rows:    head_keys
CREATE TABLE contributions (
{{ key_columns("study") }}
    query INTEGER NOT NULL, -- position of the query in its sequence, which is that of the last token
{{ key_columns("layer", "head") }}
    position INTEGER NOT NULL, -- position of the key; 0 is the sink, query the last token
{{ key_columns("sequences") }}
    mean_norm_y FLOAT NOT NULL, -- mean norm of the weighted value state over sequences, in model units [0, inf)
    mean_cos_last FLOAT, -- mean cosine of its value state with the last token's; NULL if one of them always has norm 0 [-1, 1]
    mean_cos_sink FLOAT -- mean cosine of its value state with the sink's; NULL likewise, or if a window hides the sink [-1, 1]
)
