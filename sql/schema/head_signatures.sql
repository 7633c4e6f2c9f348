-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  attention_rows, selection_counts
-- meaning: what the taxonomy of heads looks at, sequence by sequence: what sink, last token and rest contribute, and a
--          straight line through each cosine of s_N over ln N, every N weighing 1/N so that all of ln N counts alike;
--          cosines are NULL for a head that attends to one key
CREATE TABLE head_signatures (
    study VARCHAR NOT NULL, -- name of the study
    sequence INTEGER NOT NULL, -- sequence, from 0
    query INTEGER NOT NULL, -- position of the query in its sequence
    layer SMALLINT NOT NULL, -- layer, from 0
    head SMALLINT NOT NULL, -- query head, from 0
    n_keys INTEGER NOT NULL, -- keys the query may attend to
    norm_y_0 DOUBLE, -- norm of the sink's weighted value state, in model units; NULL if a window hides the sink
    norm_y_last DOUBLE NOT NULL, -- norm of the last token's weighted value state
    norm_rest DOUBLE NOT NULL, -- norm of the sum of all other weighted value states
    total_rest DOUBLE NOT NULL, -- sum of the norms of all other weighted value states
    cos_sink_level DOUBLE, -- mean of cos(s_N, v_0) over ln N; NULL if a window hides the sink or its norm is 0
    cos_sink_change DOUBLE, -- slope of that cosine over ln N times ln(n_keys - 1): its change from N = 1 to the last N
    cos_last_level DOUBLE, -- mean of cos(s_N, v_L) over ln N; NULL if the last token's value state has norm 0
    cos_last_change DOUBLE -- its change from N = 1 to the last N; 0 where there is one N only
)
