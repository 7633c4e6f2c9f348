-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  metrics store
-- meaning: over how many keys the weights of a head, and the norms of its contributions ‖α v‖, are spread, and whose the
--          largest is; weights are divided by their sum, so that a learned sink has no part in them. Means over
--          sequences are in concentration_means: these numbers of averaged weights would be larger
CREATE TABLE concentration (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
    n_keys INTEGER NOT NULL, -- number of keys the query may attend to
{{ quantity_columns(concentration) }}
    top_position INTEGER NOT NULL, -- position of the key with the largest weight, the first of equals
    top_role VARCHAR NOT NULL, -- what that key is to the query: 'last' (its own position, even if that is 0), 'sink' or 'other'
    top_contributor_position INTEGER, -- position of the key with the largest weighted norm, the first of equals; NULL if all are 0
    top_contributor_role VARCHAR -- what that key is to the query; NULL likewise
)
