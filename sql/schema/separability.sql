-- grain:   one row per (study, query, layer, head, n, measure, null_model)
-- inputs:  weights and value states of the tensor store
-- meaning: how well each head separates what it selects, mean over sequences, and the mean over heads of each sequence,
--          then over sequences, compared with chance: a selected key is part of s_N, so that random selections have an
--          AUC far above 1/2, and only the difference from them is informative; n: powers of √2 up to the longest query's
--          last; no rows if the study draws no nulls
-- rows:    head_nulls + query_nulls
-- parts:   (FROM separability UNION ALL BY NAME FROM separability_model)
CREATE TABLE separability (
{{ key_columns("study", "query") }}
    layer SMALLINT, -- layer, from 0; NULL: the whole model
    head SMALLINT, -- query head, from 0; NULL: the whole model
{{ key_columns("n") }}
    measure VARCHAR NOT NULL, -- 'precision', 'recall', 'f_r_max', 'f_r_min', 'specificity' or 'auc'
    null_model VARCHAR NOT NULL, -- 'random_selection': N random keys; 'shuffled_values': value states permuted at random among all keys but the sink and the last
    heads INTEGER, -- number of heads averaged, which attend to more than n keys; NULL for one of them [1, inf)
    sequences INTEGER NOT NULL, -- number of sequences averaged, the first of the study [1, inf)
    draws INTEGER NOT NULL, -- draws of the null for each sequence and head [1, inf)
    value DOUBLE NOT NULL, -- mean of the measure; auc: probability that a selected key is nearer to s_N than one left out, ties counting half [0, 1]
    null_value DOUBLE NOT NULL, -- mean of the null [0, 1]
{{ interval_columns("difference", "value minus null_value", "[-1, 1]") }}
)
