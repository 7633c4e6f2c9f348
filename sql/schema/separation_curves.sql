-- grain:   one row per (study, query, layer, head, sequence, n, point)
-- inputs:  weights and value states of the tensor store
-- meaning: one selection over all radii around s_N (eq. 2, 3, 32), for the heads of highest, median and lowest AUC at N
--          = 4 (or the largest N below), in one sequence at the last query; at most 200 points for each curve,
--          including the first and the last; no rows if the study draws no nulls
CREATE TABLE separation_curves (
{{ key_columns("study", "query", "layer", "head") }}
    auc_rank VARCHAR NOT NULL, -- rank of the head by mean AUC over sequences: 'highest', 'median' or 'lowest'
{{ key_columns("sequence", "n") }}
    n_keys INTEGER NOT NULL, -- number of keys the query may attend to
    auc DOUBLE NOT NULL, -- AUC of this selection, the area under recall over false_positive_share [0, 1]
    point INTEGER NOT NULL, -- point of the curve, from 0 for the nearest key; keys at the same distance make one point
    radius DOUBLE NOT NULL, -- r, distance from s_N, in model units [0, inf)
    precision DOUBLE NOT NULL, -- P(r, N), the share of selected keys among those within r (eq. 2) [0, 1]
    recall DOUBLE NOT NULL, -- R(r, N), the share of the selected keys within r [0, 1]
    false_positive_share DOUBLE NOT NULL -- share of the keys left out that are within r [0, 1]
)
