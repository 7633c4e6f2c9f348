-- grain:   one row per (study, layer, head, measure)
-- inputs:  query_heads
-- meaning: what a head does at an average query, and how far the last one is from the others: means over the queries of a
--          sequence that see at least 32 keys, then over sequences, whose number is that of the sample: queries of one
--          text are not independent; no rows unless every_query is set
CREATE TABLE query_means (
{{ key_columns("study", "layer", "head") }}
    measure VARCHAR NOT NULL, -- a column of query_heads, but for n_keys and top_position
{{ key_columns("sequences") }}
{{ interval_columns("mean", "mean over sequences of the mean over queries", "(-inf, inf)") }}
{{ interval_columns("last_difference", "mean over sequences of the last query minus the mean of the others; NULL if no sequence has both", "(-inf, inf)") }}
)
