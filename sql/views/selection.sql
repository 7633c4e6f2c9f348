-- grain:   one row per (study, sequence, query, layer, head, n)
-- inputs:  selection_counts
-- meaning: the metrics of every selection; Precision, Recall and F follow from the counts (Definitions 1-3)
CREATE OR REPLACE VIEW selection AS
SELECT
{{ key_names("study", "sequence", "query", "layer", "head") }}
    n, -- N, the number of selected keys, 1 to n_keys - 1
    n_keys, -- number of keys the query may attend to
    n / (n + k_out) AS precision, -- {{ followed.precision.describe() }}
    k_in / n AS recall, -- {{ followed.recall.describe() }}
    2 * n / (2 * n + k_out) AS f_r_max, -- {{ followed.f_r_max.describe() }}
    2 * k_in / (n + k_in) AS f_r_min, -- {{ followed.f_r_min.describe() }}
    1 - k_out / (n_keys - n) AS specificity, -- {{ followed.specificity.describe() }}
    (n / (n + k_out) - n / n_keys) / (1 - n / n_keys) AS precision_excess, -- {{ followed.precision_excess.describe() }}
    error_renormalised / nullif(weight_left_out, 0) AS distance_of_means, -- distance between the means of the value states left out and selected, each weighted, relative to the output's norm
{{ quantity_names(by_n) }}
FROM selection_counts
