-- grain:   one row per (study, measure{{ ", layer, head" if not model }})
-- inputs:  concentration of the weights in the metrics store
{% if model %}
-- meaning: how the measures of convergence depend on the number of keys: lines on two logarithmic axes through every
--          head's mean over sequences at every query; clusters are KV groups
{% else %}
-- meaning: how a head's measures of convergence depend on the number of keys: lines on two logarithmic axes through the
--          values of every sequence at every query; clusters are sequences. Status is 'one_x' if a study has one
--          context size
{% endif %}
CREATE TABLE convergence_fits{{ "_model" if model }} (
{{ key_columns("study") }}
    measure VARCHAR NOT NULL, -- 'effective_share', 'n_90_share' or 'largest_deviation'
{% if not model %}
{{ key_columns("layer", "head") }}
{% endif %}
{{ fit_columns() }}
)
