-- grain:   one row per (study, layer, kv_head)
-- inputs:  value norms of the metrics store
-- meaning: Assumption 1, norms of the value states other than the sink's: their length and how stable it is (Figure 2);
--          cv_of_mean_norm shrinks with one over the square root of the number of sequences, cv_within_sequence does
--          not; both are NULL for fewer than two positions other than the sink's, or if all norms are 0
CREATE TABLE assumption_norms (
    study VARCHAR NOT NULL, -- name of the study
    layer SMALLINT NOT NULL, -- layer, from 0
    kv_head SMALLINT NOT NULL, -- KV head, from 0
    sequences INTEGER NOT NULL, -- number of sequences behind the row
    status VARCHAR NOT NULL, -- 'ok'; 'zero': C is 0, so ratios to it are NULL
    c DOUBLE, -- C, median norm over all sequences and all positions but the sink's, in model units
    c_se DOUBLE, -- standard error of C over sequences, in model units; NULL for one sequence
    lambda_sink DOUBLE, -- λ, median norm of the sink's value state over C
    cv_of_mean_norm DOUBLE, -- coefficient of variation, over positions, of the mean norm over sequences (the paper's)
    cv_within_sequence DOUBLE, -- coefficient of variation over the positions of one sequence, mean over sequences
    cv_within_sequence_sd DOUBLE, -- its standard deviation over sequences (divisor: sequences)
    norm_p05 DOUBLE, -- 5 % quantile of the norms behind C, in model units
    norm_p25 DOUBLE, -- 25 % quantile
    norm_p75 DOUBLE, -- 75 % quantile
    norm_p95 DOUBLE -- 95 % quantile
)
