-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  query_measures and query_keys of the tensor store
-- meaning: what each head selects at every token as the query, but the first; no rows unless every_query is set. Queries
--          of one text are not independent of one another: means over them are samples of their sequence
-- rows:    measured_sequences * later_positions * heads
CREATE TABLE query_heads (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
{{ quantity_columns(of_queries) }}
    top_positions INTEGER[], -- positions of the keys of largest weight, by rank, at most 16; of the first three sequences, for people who read them, NULL for the others
    top_weights FLOAT[] -- their weights; NULL likewise
)
