-- grain:   one row per (study, query, n)
-- inputs:  distances and norms of the metrics store
-- meaning: the distances of distance_means for the whole model: means over the heads of each sequence, then over
--          sequences
-- rows:    query_n
CREATE TABLE distance_means_model (
{{ key_columns("study", "query", "n", "heads", "sequences") }}
{{ interval_columns("relative_distance", "mean distance over the norm of the head's output; NULL if that is 0", "[0, inf)") }}
    relative_random_distance DOUBLE -- the same for N random keys [0, inf)
)
