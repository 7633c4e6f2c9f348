-- grain:   one row per (study, query, layer, head, temperature, n)
-- inputs:  weights and value states; settings temperatures and temperature_sequences
-- meaning: selections by the weights softmax(l / T) of the model's logits l at another temperature, computed from the
--          weights at T = 1 (arXiv 2508.17821; only its abstract and secondary accounts were available), on a log grid
--          of N; means over the study's first temperature_sequences sequences. A key whose weight underflowed in the
--          model has weight 0 at every temperature
CREATE TABLE temperature_means (
{{ key_columns("study", "query", "layer", "head", "temperature", "n", "sequences") }}
    precision DOUBLE NOT NULL, -- mean Precision P(r_max, N)
    recall DOUBLE NOT NULL, -- mean Recall R(r_min, N)
    specificity DOUBLE NOT NULL, -- mean share of the keys left out that are farther than r_max
    auc DOUBLE NOT NULL, -- mean probability that a selected key is nearer to s_N than one left out, ties counting half
    distance DOUBLE NOT NULL, -- mean distance of s_N from the sum of the weighted value states left out, in model units
    random_distance DOUBLE NOT NULL, -- the same for N random keys (root mean square), in model units
    recall_gain_se DOUBLE, -- standard error over sequences of recall minus that at T = 1; NULL for one sequence, or without T = 1
    auc_gain_se DOUBLE -- standard error over sequences of auc minus that at T = 1; NULL likewise
)
