-- grain:   one row per (study, query, layer)
-- inputs:  metrics store
-- meaning: as key_budgets, mean over the heads of a layer in each sequence, then over sequences
-- rows:    layer_queries
CREATE TABLE key_budgets_layer (
{{ key_columns("study", "query", "layer", "heads", "sequences") }}
    n_keys DOUBLE NOT NULL, -- number of keys the query may attend to [2, inf)
{% for share in (50, 90, 99) %}
{{ interval_columns("n_" ~ share, "mean fewest keys that hold " ~ share ~ " % of the sum of the weights", "[1, inf)") }}
{% endfor %}
{% for kind in ("renormalised", "mean") %}
{% set of_kind = loop.last %}
{% for share in (10, 5, 1) %}
{{ interval_columns("n_" ~ kind ~ "_" ~ share, "mean smallest N from which error_" ~ kind ~ " of selection stays below " ~ share ~ " %", "[1, inf)", last=of_kind and loop.last) }}
{% endfor %}
{% endfor %}
)
