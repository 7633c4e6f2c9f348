-- grain:   one row per (study, measure, axis, query or n{{ ", layer, head" if not model }})
-- inputs:  distances and norms of the metrics store
{% if model %}
-- meaning: how the distances of distance_means_model depend on N and on the number of keys: lines on two logarithmic
--          axes through every head's mean over sequences; clusters are KV groups
{% else %}
-- meaning: how a head's distances depend on N at one query, and on the number of keys at one N: lines on two
--          logarithmic axes through the values of every sequence; clusters are sequences. N runs over a log grid up to
--          half of the keys, beyond which the distance grows again in every head; r2 says how well a power of N
--          describes the distance
{% endif %}
CREATE TABLE distance_fits{{ "_model" if model }} (
{{ key_columns("study") }}
    measure VARCHAR NOT NULL, -- what is fitted: 'distance', or 'random_distance'{{ ", over the norm of the output" if model }}
    axis VARCHAR NOT NULL, -- variable that it is fitted against: 'n', or 'n_keys', which needs queries with different numbers of keys
    query INTEGER, -- position of the query of a fit against n; NULL for one against n_keys
    n INTEGER, -- N of a fit against n_keys, a power of two; NULL for one against n
{% if not model %}
{{ key_columns("layer", "head") }}
{% endif %}
{{ fit_columns() }}
)
