-- grain:   one row per (study, query, layer, head)
-- inputs:  concentration
-- meaning: means over sequences of the columns of concentration
-- rows:    all_head_queries
CREATE TABLE concentration_means (
{{ key_columns("study", "query", "layer", "head", "sequences") }}
    n_keys DOUBLE NOT NULL, -- mean number of keys the query may attend to
{{ mean_columns(concentration) }}
)
