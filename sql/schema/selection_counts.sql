-- grain:   one row per (study, sequence, query, layer, head, n)
-- inputs:  metrics store
-- meaning: counts, radii, geometry and ingredients of bounds for I_N, the n keys with the largest weights;
--          cast a_0 to rho_out to DOUBLE before computing bounds from them: products of FLOAT underflow
-- rows:    sequences * head_n
CREATE TABLE selection_counts (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
    n INTEGER NOT NULL, -- N, the number of selected keys, 1 to n_keys - 1
    n_keys INTEGER NOT NULL, -- number of keys the query may attend to
{{ quantity_columns(by_n) }}
)
