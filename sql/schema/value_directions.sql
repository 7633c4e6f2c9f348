-- grain:   one row per (study, layer, kv_head, position)
-- inputs:  value states of the tensor store, principal directions
-- meaning: directions of the value states of sequence 0 as points of the unit ball: their components along the first
--          three principal directions of the head; a direction within these three lies on the sphere. Axes are oriented
--          so that the mean over all sequences, without the sink's, is positive. Positions with norm 0 have no row
CREATE TABLE value_directions (
{{ key_columns("study", "layer", "kv_head") }}
    position INTEGER NOT NULL, -- position in sequence 0; 0 is the sink
    x FLOAT NOT NULL, -- component along the first principal direction, from -1 to 1 [-1, 1]
    y FLOAT NOT NULL, -- along the second; 0 if values have one component [-1, 1]
    z FLOAT NOT NULL -- along the third; 0 if values have two components or fewer [-1, 1]
)
