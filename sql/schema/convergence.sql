-- grain:   one row per (study, query{{ ", layer, head" if not model }})
-- inputs:  concentration of the weights in the metrics store
-- meaning: how close {{ "the model's weights" if model else "a head's weights" }} are to uniform ones, mean over
--          {{ "the heads of each sequence, then over " if model }}sequences: if they converge to these as keys are added (arXiv
--          2508.17821; only its abstract and secondary accounts were available), effective_share tends to 1, n_90_share
--          to 0.9 and largest_deviation to 0; weights are divided by their sum
-- rows:    {{ "queries_of_two" if model else "head_queries" }}
CREATE TABLE convergence{{ "_model" if model }} (
{{ key_columns("study", "query") }}
{% if model %}
{{ key_columns("heads", "sequences") }}
{% set of_measure = {"effective_share": "effective keys, the exponential of the entropy, over the number of keys", "n_90_share": "fewest keys that hold 90 % of the weight, over the number of keys", "largest_deviation": "largest difference of a weight from the uniform 1 / n_keys"} %}
{% for measure, meaning in of_measure.items() %}
{{ interval_columns(measure, meaning, "[0, 1]") }}
    {{ measure }}_p10 DOUBLE NOT NULL, -- 10 % quantile over heads of their mean {{ measure }} [0, 1]
    {{ measure }}_p90 DOUBLE NOT NULL{{ "," if not loop.last }} -- 90 % quantile over heads [0, 1]
{% endfor %}
{% else %}
{{ key_columns("layer", "head") }}
    n_keys INTEGER NOT NULL, -- number of keys the query may attend to [2, inf)
{{ key_columns("sequences") }}
    effective_share DOUBLE NOT NULL, -- effective keys, the exponential of the entropy, over the number of keys (0, 1]
    n_90_share DOUBLE NOT NULL, -- fewest keys that hold 90 % of the weight, over the number of keys (0, 1]
    largest_deviation DOUBLE NOT NULL -- largest difference of a weight from the uniform 1 / n_keys [0, 1]
{% endif %}
)
