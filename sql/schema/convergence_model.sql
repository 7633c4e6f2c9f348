-- grain:   one row per (study, query)
-- inputs:  concentration of the weights in the metrics store
-- meaning: how close the model's weights are to uniform ones, mean over the heads of each sequence, then over sequences;
--          the measures are those of the view convergence
-- rows:    queries_of_two
CREATE TABLE convergence_model (
{{ key_columns("study", "query", "heads", "sequences") }}
{% set of_measure = {"effective_share": "effective keys, the exponential of the entropy, over the number of keys", "n_90_share": "fewest keys that hold 90 % of the weight, over the number of keys"} %}
{% for measure, meaning in of_measure.items() %}
    {{ measure }} DOUBLE NOT NULL, -- {{ meaning }} [0, 1]
    {{ measure }}_p10 DOUBLE NOT NULL, -- 10 % quantile over heads of their mean {{ measure }} [0, 1]
    {{ measure }}_p90 DOUBLE NOT NULL{{ "," if not loop.last }} -- 90 % quantile over heads [0, 1]
{% endfor %}
)
