-- grain:   one row per (study, query{{ ", layer, head" if not model }})
-- inputs:  metrics store
{% if model %}
-- meaning: how many keys a head needs for a share of its weight or an error, mean over the heads of each sequence, then
--          over sequences; key_budgets_layer has the same of every layer
-- rows:    queries_of_two
{% else %}
-- meaning: how many keys a head needs for a share of its weight or an error of its output: to keep 90 % of the weight,
--          keep n_90 keys; for an error below 10 %, with renormalised weights, n_renormalised_10; mean over sequences,
--          for heads that attend to more than one key
-- rows:    head_queries
{% endif %}
CREATE TABLE key_budgets{{ "_model" if model }} (
{{ key_columns("study", "query") }}
{% if not model %}
{{ key_columns("layer", "head") }}
{% else %}
    heads INTEGER NOT NULL, -- number of heads that attend to more than one key [1, inf)
{% endif %}
{{ key_columns("sequences") }}
    n_keys DOUBLE NOT NULL, -- number of keys the query may attend to{{ ", mean over heads" if model }} [2, inf)
{{ budget_columns() }}
)
