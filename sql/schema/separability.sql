-- grain:   one row per (study, query{{ ", layer, head" if not model }}, n, measure, null_model)
-- inputs:  weights and value states of the tensor store
{% if model %}
-- meaning: the measures of separability, mean over heads and sequences, compared with chance; no rows if the study draws
--          no nulls
-- rows:    query_nulls
{% else %}
-- meaning: how well each head separates what it selects, mean over sequences, compared with chance: a selected key is
--          part of s_N, so that random selections have an AUC far above 1/2, and only the difference from them is
--          informative; n: powers of √2 up to the longest query's last; no rows if the study
--          draws no nulls
-- rows:    head_nulls
{% endif %}
CREATE TABLE separability{{ "_model" if model }} (
{{ key_columns("study", "query") }}
{% if not model %}
{{ key_columns("layer", "head") }}
{% endif %}
{{ key_columns("n") }}
    measure VARCHAR NOT NULL, -- 'precision', 'recall', 'f_r_max', 'f_r_min', 'specificity' or 'auc'
    null_model VARCHAR NOT NULL, -- 'random_selection': N random keys; 'shuffled_values': value states permuted at random among all keys but the sink and the last
{% if model %}
    heads INTEGER NOT NULL, -- number of heads that attend to more than n keys [1, inf)
{% endif %}
    sequences INTEGER NOT NULL, -- number of sequences averaged, the first of the study [1, inf)
    draws INTEGER NOT NULL, -- draws of the null for each sequence and head [1, inf)
    value DOUBLE NOT NULL, -- mean of the measure; auc: probability that a selected key is nearer to s_N than one left out, ties counting half [0, 1]
    null_value DOUBLE NOT NULL, -- mean of the null [0, 1]
{{ interval_columns("difference", "value minus null_value", "[-1, 1]", last=true) }}
)
