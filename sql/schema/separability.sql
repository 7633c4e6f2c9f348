-- grain:   one row per (study, query{{ ", layer, head" if not model }}, n, measure, null_model)
-- inputs:  weights and value states of the tensor store
{% if model %}
-- meaning: the measures of separability, mean over sequences and heads, compared with chance; the interval of the
--          difference is for other sequences and other KV groups: percentiles of 1000 bootstrap replicates over both,
--          widened by Student's t if there are few; no rows if the study draws no nulls
{% else %}
-- meaning: how well each head separates what it selects, mean over sequences, compared with chance: a selected key is
--          part of s_N, so that random selections have an AUC far above 1/2, and only the difference from them is
--          informative; n: about 48 values, evenly spaced on a log axis up to the longest query's; interval:
--          percentiles of 1000 bootstrap replicates over sequences, widened by Student's t if there are few; no rows if
--          the study draws no nulls
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
    heads INTEGER NOT NULL, -- number of heads that attend to more than n keys
{% endif %}
    sequences INTEGER NOT NULL, -- number of sequences averaged, the first of the study
    draws INTEGER NOT NULL, -- draws of the null for each sequence and head
    value DOUBLE NOT NULL, -- mean of the measure; auc: probability that a selected key is nearer to s_N than one left out, ties counting half
    null_value DOUBLE NOT NULL, -- mean of the null
    difference DOUBLE NOT NULL, -- value minus null_value
{% if model %}
    se DOUBLE, -- standard error of the difference over sequences and KV groups; NULL if there is only one of either
    low DOUBLE, -- its 95 % interval; NULL for one sequence or KV group, or if too few heads have that many keys
{% else %}
    se DOUBLE, -- standard error of the difference over sequences; NULL for one sequence
    low DOUBLE, -- its 95 % interval; NULL for one sequence
{% endif %}
    high DOUBLE -- upper end of that interval
)
