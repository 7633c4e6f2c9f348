-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  metrics store
-- meaning: summary of a head's row of attention weights: the number of keys, whether the sink is one of them, the sum
--          of the weights, and how much the sink, the last token (the query's own position) and the rest contribute to
--          the head's output; the sink is the key at position 0; a learned sink is a parameter of the model that takes
--          part in the softmax without being a key; and how many keys the weights, and the norms of the contributions
--          ‖α v‖, are spread over, and which key has the largest: weights are divided by their sum, which excludes a
--          learned sink. Means over sequences are in concentration_means: the same numbers of averaged weights would be
--          larger
-- rows:    sequences * all_head_queries
-- parts:   attention_rows JOIN concentration USING (sequence, query, layer, head, n_keys)
CREATE TABLE attention_rows (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
    n_keys INTEGER NOT NULL, -- number of keys the query may attend to
    sink_attended BOOLEAN NOT NULL, -- whether position 0 is one of them; false if a window hides it
{{ quantity_columns(of_attention) }}
{{ quantity_columns(concentration) }}
    top_position INTEGER NOT NULL, -- position of the key with the largest weight; the first in case of ties
    top_role VARCHAR NOT NULL, -- role of that key for the query: 'last' (its own position, even if that is 0), 'sink' or 'other'
    top_contributor_position INTEGER, -- position of the key with the largest weighted norm; the first in case of ties; NULL if all are 0
    top_contributor_role VARCHAR -- role of that key for the query; NULL likewise
)
