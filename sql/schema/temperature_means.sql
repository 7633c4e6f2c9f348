-- grain:   one row per (study, query, layer, head, temperature, n)
-- inputs:  weights and value states; settings temperatures and temperature_sequences
-- meaning: selections with the weights softmax(l / T) that the same logits l have at another temperature, which follow
--          from those at 1 (arXiv 2508.17821, of which the abstract and accounts were at hand), on a log grid of N; means
--          over the study's first sequences, as many as temperature_sequences says. A key whose weight underflowed in the
--          model has none at any temperature
CREATE TABLE temperature_means (
{{ key_columns("study", "query", "layer", "head", "temperature", "n", "sequences") }}
    precision DOUBLE NOT NULL, -- mean Precision P(r_max, N)
    recall DOUBLE NOT NULL, -- mean Recall R(r_min, N)
    specificity DOUBLE NOT NULL, -- mean share of the keys left out that are farther than r_max
    auc DOUBLE NOT NULL, -- mean probability that a selected key is nearer to s_N than one left out, ties counting half
    distance DOUBLE NOT NULL, -- mean distance of s_N from the sum of the weighted value states left out, in model units
    random_distance DOUBLE NOT NULL, -- the same of N keys at random (root mean square), in model units
    recall_gain_se DOUBLE, -- standard error over sequences of recall less that at T = 1; NULL for one, or without T = 1
    auc_gain_se DOUBLE -- standard error over sequences of auc less that at T = 1; NULL likewise
)
