-- grain:   one row per (study, sequence, query, layer, head, n)
-- inputs:  metrics store
-- meaning: counts, radii, geometry and ingredients of bounds for I_N, the n keys with the largest weights;
--          cast a_0 to rho_out to DOUBLE before computing bounds from them: products of FLOAT underflow
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
    cos_last FLOAT, -- cosine between s_N and the last token's value state; NULL if of zero norm
    a_0 FLOAT, -- weighted norm of the sink's value state (eq. 8), in model units; NULL while the sink is not selected
    s_in FLOAT, -- sum of weighted norms over the selected keys but the sink (eq. 7); NULL if there are none
    a_min_in FLOAT, -- smallest weighted norm of the selected keys but the sink (eq. 7); NULL if there are none
    a_max_in FLOAT, -- largest weighted norm of the selected keys but the sink (eq. 8); NULL if there are none
    a_max_out FLOAT NOT NULL, -- largest weighted norm of the keys left out (eq. 7), in model units
    rho_out FLOAT, -- largest cosine of a selected key but the sink with one left out, at least 0 (eq. 7); NULL as s_in
    precision_lower_scale_free FLOAT, -- scale-free lower bound of P(r_max, N) (geometry/scale_free.md)
    recall_lower_scale_free FLOAT -- scale-free lower bound of R(r_min, N) (geometry/scale_free.md)
)
