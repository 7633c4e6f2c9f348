-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  metrics store
-- meaning: summary of a head's row of attention weights: the number of keys, whether the sink is one of them, the sum
--          of the weights, and how much the sink, the last token (the query's own position) and the rest contribute to
--          the head's output; the sink is the key at position 0; a learned sink is a parameter of the model that takes
--          part in the softmax without being a key
-- rows:    sequences * all_head_queries
CREATE TABLE attention_rows (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
    n_keys INTEGER NOT NULL, -- number of keys the query may attend to
    sink_attended BOOLEAN NOT NULL, -- whether position 0 is one of them; false if a window hides it
{{ quantity_columns(of_attention, last=True) }}
)
