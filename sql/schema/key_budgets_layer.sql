-- grain:   one row per (study, query, layer)
-- inputs:  metrics store
-- meaning: as key_budgets, mean over the heads of a layer in each sequence, then over sequences
-- rows:    layer_queries
CREATE TABLE key_budgets_layer (
{{ key_columns("study", "query", "layer", "heads", "sequences") }}
    n_keys DOUBLE NOT NULL, -- number of keys the query may attend to [2, inf)
{{ budget_columns() }}
)
