-- grain:   one row per (study, query, layer, head, position)
-- inputs:  attention of the tensor store
-- meaning: weight that the query gives to each position, over sequences (Figure 4); hidden positions have no row
-- rows:    head_keys
CREATE TABLE attention_by_position (
{{ key_columns("study", "query", "layer", "head") }}
    position INTEGER NOT NULL, -- position of the key; 0 is the sink [0, inf)
    sequences INTEGER NOT NULL, -- number of sequences averaged [1, inf)
    mean_weight FLOAT NOT NULL -- mean softmax weight over sequences [0, 1]
)
