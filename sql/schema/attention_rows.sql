-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  metrics store
-- meaning: what a head's row of attention weights is: how many keys, whether the sink is one, what they sum to, and how
--          much the sink, the last token (the query's own position) and the rest contribute to the head's output; the
--          sink is the key at position 0, a learned sink a number of the model that takes part in the softmax as no key
CREATE TABLE attention_rows (
    study VARCHAR NOT NULL, -- name of the study
    sequence INTEGER NOT NULL, -- sequence, from 0
    query INTEGER NOT NULL, -- position of the query in its sequence
    layer SMALLINT NOT NULL, -- layer, from 0
    head SMALLINT NOT NULL, -- query head, from 0
    n_keys INTEGER NOT NULL, -- keys the query may attend to
    sink_attended BOOLEAN NOT NULL, -- whether position 0 is one of them; false if a window hides it
    weight_sum FLOAT NOT NULL, -- sum of the weights; below 1 where the head has a learned sink
    learned_sink FLOAT NOT NULL, -- weight of the head's learned sink, what weight_sum lacks to 1; 0 without one
    norm_y_0 FLOAT, -- norm of the sink's weighted value state, in model units; NULL if a window hides the sink
    norm_y_last FLOAT NOT NULL, -- norm of the last token's weighted value state, in model units
    norm_rest FLOAT NOT NULL, -- norm of the sum of all other weighted value states; 0 if there are none
    total_rest FLOAT NOT NULL -- sum of the norms of all other weighted value states, at least norm_rest
)
