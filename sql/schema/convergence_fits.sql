-- grain:   one row per (study, measure{{ ", layer, head" if not model }})
-- inputs:  concentration of the weights in the metrics store
{% if model %}
-- meaning: how the measures of convergence go with the number of keys: lines on two logarithmic axes through every head's
--          mean over sequences at every query; clusters are KV groups
{% else %}
-- meaning: how a head's measures of convergence go with the number of keys: lines on two logarithmic axes through those of
--          every sequence at every query; clusters are sequences. Status 'one_x' where a study has one size of context
{% endif %}
CREATE TABLE convergence_fits{{ "_model" if model }} (
{{ key_columns("study") }}
    measure VARCHAR NOT NULL, -- 'effective_share', 'n_90_share' or 'largest_deviation'
{% if not model %}
{{ key_columns("layer", "head") }}
{% endif %}
{{ fit_columns() }}
)
