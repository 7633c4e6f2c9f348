-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  weights, and norms of queries and keys
-- meaning: norms of the queries and keys whose products are the logits, as they are multiplied (rotated, normalised),
--          and the extreme weights; input of the view weight_intervals. Norms are NULL for models read in two passes,
--          and in studies whose tensors an earlier version extracted
-- rows:    sequences * all_head_queries
CREATE TABLE logit_range (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
    n_keys INTEGER NOT NULL, -- number of keys the query may attend to
    query_norm FLOAT, -- norm of the query, times the scale of the attention
    key_norm FLOAT, -- largest norm of a key that the query attends to
    logit_cap FLOAT, -- soft cap c of the layer's logits x, which are c tanh(x / c); NULL without one
    least_weight DOUBLE NOT NULL, -- smallest weight, divided by the sum of the weights; 0 where one underflowed
    largest_weight DOUBLE NOT NULL, -- largest weight, divided by the sum of the weights
    underflowed INTEGER NOT NULL -- number of keys whose weight underflowed to 0
)
