-- grain:   one row per (study, sequence, query, layer, head, n)
-- inputs:  selection_counts, attention_rows, random_subset_distance
-- meaning: the distance of s_N from the keys left out, and that of N random keys; means are in distance_means
CREATE OR REPLACE VIEW rest_distances AS
SELECT
{{ key_names("study", "sequence", "query", "layer", "head", "n") }}
    selection_counts.n_keys AS n_keys, -- number of keys the query may attend to
    distance_rest, -- {{ stored.distance_rest.describe() }}
    random_subset_distance(
        norm_output, norm_contributions, n, selection_counts.n_keys
    ) AS random_distance, -- the same for N random keys (root mean square over all N-subsets), in model units
FROM selection_counts
JOIN attention_rows USING (study, sequence, query, layer, head)
