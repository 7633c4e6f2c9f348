-- grain:   one row per (study, kind, measure)
-- inputs:  head_ablation_by_sequence, head_levels, head_measures
-- meaning: whether a measure of heads goes with the loss that replacing a head's output costs (analysis.effects), and
--          the error of 16 keys goes better with it: rank correlations over heads within layers, sequence by sequence,
--          and the p value of exchanging KV groups within layers; empty unless the study asks for effects
CREATE TABLE loss_associations (
{{ key_columns("study") }}
    kind VARCHAR NOT NULL, -- what a head's output is replaced by, as in head_ablation
    measure VARCHAR NOT NULL, -- the measure of a head, as in head_measures
    heads INTEGER NOT NULL, -- number of heads that have it and a loss [0, inf)
{{ key_columns("sequences") }}
{{ interval_columns("correlation", "mean rank correlation within layers; NULL if one of both is the same in all heads of every layer", "[-1, 1]") }}
    p DOUBLE, -- two-sided p value of random arrangements of KV groups within layers [0, 1]
    p_holm DOUBLE NOT NULL, -- the larger of p and that of a mean correlation of 0 over sequences, by Student's t, after Holm's correction for all rows of the study [0, 1]
{{ interval_columns("error_ahead", "Fisher's z of the correlation with error_renormalised_16, minus that with this measure, whose sign is chosen so that it goes with the loss; NULL for that error itself", "(-inf, inf)") }}
    error_ahead_p_holm DOUBLE, -- as p_holm, of a difference of 0, after Holm's correction for all these differences [0, 1]
    correlation_over_all DOUBLE -- rank correlation of the means over all heads, which depth moves; shown for comparison [-1, 1]
)
