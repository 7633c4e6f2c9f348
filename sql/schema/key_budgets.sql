-- grain:   one row per (study, query, layer{{ ", head" if not model }})
-- inputs:  metrics store
{% if model %}
-- meaning: how many keys a head needs for a share of its weight or an error, mean over the heads of the model, or of a
--          layer, in each sequence, then over sequences; and how close the model's weights are to uniform ones, by the
--          measures of the view convergence
-- rows:    queries_of_two + layer_queries
-- parts:   (FROM key_budgets_model JOIN convergence_model USING (query, heads, sequences) UNION ALL BY NAME FROM key_budgets_layer)
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
    layer SMALLINT, -- layer, from 0; NULL: the whole model
    heads INTEGER NOT NULL, -- number of heads that attend to more than one key [1, inf)
{% endif %}
{{ key_columns("sequences") }}
    n_keys DOUBLE NOT NULL, -- number of keys the query may attend to{{ ", mean over heads" if model }} [2, inf)
{% if model %}
{% set of_measure = {"effective_share": "effective keys, the exponential of the entropy, over the number of keys", "n_90_share": "fewest keys that hold 90 % of the weight, over the number of keys"} %}
{% for measure, meaning in of_measure.items() %}
    {{ measure }} DOUBLE, -- {{ meaning }}; NULL for a layer [0, 1]
    {{ measure }}_p10 DOUBLE, -- 10 % quantile over heads of their mean {{ measure }} [0, 1]
    {{ measure }}_p90 DOUBLE, -- 90 % quantile over heads [0, 1]
{% endfor %}
{% endif %}
{{ budget_columns() }}
)
