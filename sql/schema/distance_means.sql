-- grain:   one row per (study, query, layer, head, n)
-- inputs:  distances and norms of outputs in the metrics store
-- meaning: mean over sequences of the distance of s_N from the sum of the weighted value states left out (arXiv
--          2508.17821; only its abstract and secondary accounts were available), and the same for N random keys: the
--          root mean square over all N-subsets, as the macro random_subset_distance gives it; both divided by the norm
--          of the head's output, so that heads with long and with short outputs count alike
-- rows:    head_n
CREATE TABLE distance_means (
{{ key_columns("study", "query", "layer", "head", "n", "sequences") }}
    relative_distance FLOAT, -- mean distance over the norm of the head's output; NULL if that is 0 in every sequence [0, inf)
    relative_random_distance FLOAT -- the same for N random keys [0, inf)
)
