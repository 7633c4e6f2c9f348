-- grain:   one row per (study, query, layer, head, temperature, n)
-- inputs:  weights and value states; settings temperatures and temperature_sequences
-- meaning: selections by the weights softmax(l / T) of the model's logits l at another temperature, computed from the
--          weights at T = 1 (arXiv 2508.17821; only its abstract and secondary accounts were available), on a log grid
--          of N; means over the study's first temperature_sequences sequences. A key whose weight underflowed in the
--          model has weight 0 at every temperature
CREATE TABLE temperature_means (
{{ key_columns("study", "query", "layer", "head", "temperature", "n", "sequences") }}
    precision DOUBLE NOT NULL, -- mean Precision P(r_max, N) [0, 1]
    recall DOUBLE NOT NULL, -- mean Recall R(r_min, N) [0, 1]
    specificity DOUBLE NOT NULL, -- mean share of the keys left out that are farther than r_max [0, 1]
    auc DOUBLE NOT NULL, -- mean probability that a selected key is nearer to s_N than one left out, ties counting half [0, 1]
    distance DOUBLE NOT NULL, -- mean distance of s_N from the sum of the weighted value states left out, in model units [0, inf)
    random_distance DOUBLE NOT NULL, -- the same for N random keys (root mean square), in model units [0, inf)
{{ interval_columns("recall_gain", "recall minus that at T = 1; NULL if that was not computed", "[-1, 1]") }}
{{ interval_columns("auc_gain", "auc minus that at T = 1; NULL likewise", "[-1, 1]") }}
)
