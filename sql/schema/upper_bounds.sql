-- grain:   one row per (study, sequence, query, layer, head, n, kappa)
-- inputs:  metrics store
-- meaning: the paper's upper bounds of Precision and Recall (Theorems 1-2) for each κ of the study
-- rows:    sequences * head_n * kappas
CREATE TABLE upper_bounds (
{{ key_columns("study", "sequence", "query", "layer", "head", "n") }}
    kappa DOUBLE NOT NULL, -- κ, the constant of the tail bound (eq. 10); the paper gives it no value
    scale VARCHAR NOT NULL, -- 'unit': weighted norms divided by the row's value_scale; 'raw': as printed
{{ quantity_columns(by_kappa) }}
)
