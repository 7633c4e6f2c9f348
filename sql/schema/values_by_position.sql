-- grain:   one row per (study, layer, kv_head, position)
-- inputs:  value norms of the metrics store, value states of sequence 0, principal directions
-- meaning: norm of the value states at each position, over sequences (Figure 2 left), and the directions of those of
--          sequence 0 as points of the unit ball: their components along the first three principal directions of the
--          head; a direction within these three lies on the sphere. Axes are oriented so that the mean over all
--          sequences, without the sink's, is positive. The components are NULL for a value state of norm 0
-- rows:    kv_heads * positions
-- parts:   value_norm_by_position LEFT JOIN (SELECT layer, kv_head, position, x, y, z FROM value_directions) USING (layer, kv_head, position)
CREATE TABLE values_by_position (
{{ key_columns("study", "layer", "kv_head") }}
    position INTEGER NOT NULL, -- position in the sequence; 0 is the sink
{{ key_columns("sequences") }}
    mean_norm FLOAT NOT NULL, -- mean norm over sequences, in model units [0, inf)
    x FLOAT, -- component along the first principal direction, from -1 to 1 [-1, 1]
    y FLOAT, -- along the second; 0 if values have one component [-1, 1]
    z FLOAT -- along the third; 0 if values have two components or fewer [-1, 1]
)
