-- grain:   one row per (study, sequence, query, n, measure, null_model)
-- inputs:  weights and value states of the tensor store
-- meaning: the means over heads in one sequence whose means over sequences separability_model holds
CREATE TABLE separability_by_sequence (
{{ key_columns("study", "sequence", "query", "n") }}
    measure VARCHAR NOT NULL, -- 'precision', 'recall', 'f_r_max', 'f_r_min', 'specificity' or 'auc'
    null_model VARCHAR NOT NULL, -- 'random_selection' or 'shuffled_values'
    value DOUBLE NOT NULL, -- mean over heads of the measure [0, 1]
    null_value DOUBLE NOT NULL -- mean over heads of the null [0, 1]
)
