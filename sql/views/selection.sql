-- grain:   one row per (study, sequence, query, layer, head, n)
-- inputs:  selection_counts
-- meaning: the metrics of every selection; Precision, Recall and F follow from the counts (Definitions 1-3)
CREATE OR REPLACE VIEW selection AS
SELECT
    study, -- name of the study
    sequence, -- sequence, from 0
    query, -- position of the query in its sequence
    layer, -- layer, from 0
    head, -- query head, from 0
    n, -- N, the number of selected keys, 1 to n_keys - 1
    n_keys, -- keys the query may attend to
    k_in, -- selected keys no farther from s_N than r_min (eq. 20)
    k_out, -- keys left out that are no farther from s_N than r_max (eq. 20)
    n / (n + k_out) AS precision, -- Precision P(r_max, N); P(r_min, N) is 1 by convention (eq. 4)
    k_in / n AS recall, -- Recall R(r_min, N); R(r_max, N) is 1 by convention (eq. 4)
    2 * k_in / (n + k_in) AS f_r_min, -- F(r_min, N) = 2R / (1 + R)
    2 * n / (2 * n + k_out) AS f_r_max, -- F(r_max, N) = 2P / (1 + P)
    r_min, -- distance from s_N to the nearest key left out (eq. 19), in model units
    r_max, -- distance from s_N to the farthest selected key (eq. 19), in model units
    norm_s, -- norm of s_N (eq. 1), in model units
    norm_s_without_sink, -- norm of s_N without the sink's part; NULL if a window hides the sink
    norm_s_without_last, -- norm of s_N without the last token's part
    cos_sink, -- cosine between s_N and the sink's value state; NULL if hidden or of zero norm
    cos_last, -- cosine between s_N and the last token's value state; NULL if of zero norm
    a_0, -- weighted norm of the sink's value state (eq. 8), in model units; NULL while the sink is not selected
    s_in, -- sum of weighted norms over the selected keys but the sink (eq. 7); NULL if there are none
    a_min_in, -- smallest weighted norm of the selected keys but the sink (eq. 7); NULL if there are none
    a_max_in, -- largest weighted norm of the selected keys but the sink (eq. 8); NULL if there are none
    a_max_out, -- largest weighted norm of the keys left out (eq. 7), in model units
    rho_out, -- largest cosine of a selected key but the sink with one left out, at least 0 (eq. 7); NULL as s_in
FROM selection_counts
