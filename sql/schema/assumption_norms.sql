-- grain:   one row per (study, layer, kv_head)
-- inputs:  value norms of the metrics store
-- meaning: Assumption 1, norms of the value states other than the sink's: their length and how stable it is (Figure 2);
--          cv_of_mean_norm shrinks with one over the square root of the number of sequences, the other two do not; all
--          are NULL for fewer than two positions other than the sink's, or if all norms are 0
-- rows:    kv_heads
CREATE TABLE assumption_norms (
{{ key_columns("study", "layer", "kv_head", "sequences") }}
    status VARCHAR NOT NULL, -- 'ok'; 'zero': C is 0 in every sequence, so ratios to it are NULL
{{ interval_columns("c", "C, median norm of the positions of a sequence but the sink's, mean over sequences, in model units", "[0, inf)") }}
{{ interval_columns("lambda_sink", "λ, norm of the sink's value state over C of the sequence, mean over sequences", "[0, inf)") }}
    cv_within_sequence DOUBLE, -- coefficient of variation over the positions of one sequence, mean over sequences [0, inf)
    cv_of_expected_norm DOUBLE, -- coefficient of variation over positions of the expected norm: the limit of cv_of_mean_norm for many sequences [0, inf)
    cv_of_mean_norm DOUBLE -- coefficient of variation, over positions, of the mean norm over sequences (the paper's) [0, inf)
)
