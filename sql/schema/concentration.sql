-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  metrics store
-- meaning: how many keys the weights of a head, and the norms of its contributions ‖α v‖, are spread over, and which
--          key has the largest; weights are divided by their sum, which excludes a learned sink. Means over sequences
--          are in concentration_means: the same numbers of averaged weights would be larger
-- rows:    sequences * all_head_queries
CREATE TABLE concentration (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
    n_keys INTEGER NOT NULL, -- number of keys the query may attend to
{{ quantity_columns(concentration) }}
    top_position INTEGER NOT NULL, -- position of the key with the largest weight; the first in case of ties
    top_role VARCHAR NOT NULL, -- role of that key for the query: 'last' (its own position, even if that is 0), 'sink' or 'other'
    top_contributor_position INTEGER, -- position of the key with the largest weighted norm; the first in case of ties; NULL if all are 0
    top_contributor_role VARCHAR -- role of that key for the query; NULL likewise
)
