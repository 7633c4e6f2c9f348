-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  query_keys of the tensor store
-- meaning: the keys of largest weight at every token as the query, but the first, by rank, at most 16; of the first three
--          sequences, for people who read them; no rows unless every_query is set
-- rows:    read_sequences * later_positions * heads
CREATE TABLE query_keys (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
    position INTEGER[] NOT NULL, -- positions of the keys
    weight FLOAT[] NOT NULL -- their weights
)
