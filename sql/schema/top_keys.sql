-- grain:   one row per (study, sequence, query, layer, head, rank)
-- inputs:  weights and value states of the tensor store
-- meaning: the keys of largest weight of each head, in order of falling weight, ties in order of position; join tokens
--          on sequence and position for the text
-- rows:    sequences * head_top_keys
CREATE TABLE top_keys (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
    rank SMALLINT NOT NULL, -- rank by weight, from 1 [1, 16]
    position INTEGER NOT NULL, -- position of the key; 0 is the sink, query the last token [0, inf)
    weight FLOAT NOT NULL, -- its weight [0, 1]
    contribution FLOAT NOT NULL, -- norm of its weighted value state, in model units [0, inf)
    n INTEGER NOT NULL, -- N of s_N: 4, or all keys of the head if it has fewer [1, 4]
    relative_distance FLOAT, -- distance of its weighted value state from s_N over the norm of s_N; NULL if that is 0 [0, inf)
    within_r_min BOOLEAN NOT NULL, -- whether it is one of the N selected keys and no farther from s_N than every key left out
    within_r_min_at INTEGER NOT NULL -- the same for every N from 1 to 16: bit N - 1, (within_r_min_at >> (N - 1)) & 1 [0, 65535]
)
