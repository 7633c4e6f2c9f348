-- grain:   one row per (study, query, layer, head, position)
-- inputs:  weights of the tensor store, norms and cosines of the metrics
-- meaning: weight that the query gives to each position, over sequences (Figure 4), contribution of the position to the
--          head's output, ‖α_i v_i‖, and the cosines of its value state with those of the last token and of the sink
--          (Figure 10); hidden positions have no row
-- rows:    head_keys
CREATE TABLE attention_by_position (
{{ key_columns("study", "query", "layer", "head") }}
    position INTEGER NOT NULL, -- position of the key; 0 is the sink, query the last token [0, inf)
    sequences INTEGER NOT NULL, -- number of sequences averaged [1, inf)
    mean_weight FLOAT NOT NULL, -- mean softmax weight over sequences [0, 1]
    mean_norm_y FLOAT NOT NULL, -- mean norm of the weighted value state over sequences, in model units [0, inf)
    mean_cos_last FLOAT, -- mean cosine of its value state with the last token's; NULL if one of them always has norm 0 [-1, 1]
    mean_cos_sink FLOAT -- mean cosine of its value state with the sink's; NULL likewise, or if a window hides the sink [-1, 1]
)
