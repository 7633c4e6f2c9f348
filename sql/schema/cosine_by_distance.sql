-- grain:   one row per (study, layer, kv_head, distance)
-- inputs:  cosines of the metrics store
-- meaning: mean cosine between two value states, neither the sink's, against their distance (Assumption 2, Figure 3)
-- rows:    kv_heads * distances
CREATE TABLE cosine_by_distance (
{{ key_columns("study", "layer", "kv_head") }}
    distance INTEGER NOT NULL, -- distance of the two positions, from 1 [1, inf)
{{ key_columns("sequences") }}
    mean_cosine FLOAT -- mean over all pairs at this distance, then over sequences; NULL if all have norm 0 [-1, 1]
)
