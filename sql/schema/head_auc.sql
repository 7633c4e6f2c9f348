-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  weights and value states of the tensor store
-- meaning: mean AUC of one head in one sequence over ln N, N from 2 on: of the first sequences of the study, those that
--          separability averages; NULL for a head that attends to two keys; no rows if the study draws no nulls
-- rows:    null_sequences * head_queries
CREATE TABLE head_auc (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
    auc DOUBLE -- probability that a selected key is nearer to s_N than one left out, mean over ln N [0, 1]
)
