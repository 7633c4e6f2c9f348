-- grain:   one row per (study, sequence, query, layer, head, n)
-- inputs:  metrics store
-- meaning: counts, radii and geometry of the selection I_N of the n keys with the largest weights
CREATE TABLE selection_counts (
    study VARCHAR NOT NULL, -- name of the study
    sequence INTEGER NOT NULL, -- sequence, from 0
    query INTEGER NOT NULL, -- position of the query in its sequence
    layer SMALLINT NOT NULL, -- layer, from 0
    head SMALLINT NOT NULL, -- query head, from 0
    n INTEGER NOT NULL, -- N, the number of selected keys, 1 to n_keys - 1
    n_keys INTEGER NOT NULL, -- keys the query may attend to
    k_in INTEGER NOT NULL, -- selected keys no farther from s_N than r_min (eq. 20)
    k_out INTEGER NOT NULL, -- keys left out that are no farther from s_N than r_max (eq. 20)
    r_min FLOAT NOT NULL, -- distance from s_N to the nearest key left out (eq. 19), in model units
    r_max FLOAT NOT NULL, -- distance from s_N to the farthest selected key (eq. 19), in model units
    norm_s FLOAT NOT NULL, -- norm of s_N (eq. 1), in model units
    norm_s_without_sink FLOAT, -- norm of s_N without the sink's part; NULL if a window hides the sink
    norm_s_without_last FLOAT NOT NULL, -- norm of s_N without the last token's part
    cos_sink FLOAT, -- cosine between s_N and the sink's value state; NULL if hidden or of zero norm
    cos_last FLOAT -- cosine between s_N and the last token's value state; NULL if of zero norm
)
