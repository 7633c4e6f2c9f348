-- grain:   one row per (study, query, layer, head, n)
-- inputs:  counts of the metrics store
-- meaning: mean Precision, Recall and F of a head over sequences, with percentile intervals of 1000 bootstrap
--          replicates, the same resampled sequences for all heads and N
CREATE TABLE selection_means (
    study VARCHAR NOT NULL, -- name of the study
    query INTEGER NOT NULL, -- position of the query in its sequence
    layer SMALLINT NOT NULL, -- layer, from 0
    head SMALLINT NOT NULL, -- query head, from 0
    n INTEGER NOT NULL, -- N, the number of selected keys
    sequences INTEGER NOT NULL, -- number of sequences averaged
    precision DOUBLE NOT NULL, -- mean Precision P(r_max, N)
    precision_ci_low DOUBLE, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    precision_ci_high DOUBLE, -- upper end of that interval
    recall DOUBLE NOT NULL, -- mean Recall R(r_min, N)
    recall_ci_low DOUBLE, -- its 95 % bootstrap interval over sequences
    recall_ci_high DOUBLE, -- upper end of that interval
    f_r_max DOUBLE NOT NULL, -- mean F(r_max, N)
    f_r_max_ci_low DOUBLE, -- its 95 % bootstrap interval over sequences
    f_r_max_ci_high DOUBLE, -- upper end of that interval
    f_r_min DOUBLE NOT NULL, -- mean F(r_min, N)
    f_r_min_ci_low DOUBLE, -- its 95 % bootstrap interval over sequences
    f_r_min_ci_high DOUBLE -- upper end of that interval
)
