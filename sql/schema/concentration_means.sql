-- grain:   one row per (study, query, layer, head)
-- inputs:  concentration
-- meaning: means over sequences of the columns of concentration, and the share of sequences in which the top key has
--          each role
-- rows:    all_head_queries
CREATE TABLE concentration_means (
{{ key_columns("study", "query", "layer", "head", "sequences") }}
    n_keys DOUBLE NOT NULL, -- mean number of keys the query may attend to
{{ mean_columns(concentration) }}
    top_sink_share DOUBLE NOT NULL, -- share of sequences in which the sink has the largest weight
    top_last_share DOUBLE NOT NULL, -- share of sequences in which the last token has it
    top_other_share DOUBLE NOT NULL, -- share of sequences in which another key has it
    top_contributor_sink_share DOUBLE, -- share of sequences in which the sink has the largest weighted norm; NULL if all are 0 in every sequence
    top_contributor_last_share DOUBLE, -- share of sequences in which the last token has it; NULL likewise
    top_contributor_other_share DOUBLE -- share of sequences in which another key has it; NULL likewise
)
