-- grain:   one row per (study, measure, axis, query or n{{ ", layer, head" if not model }})
-- inputs:  distances and norms of the metrics store
{% if model %}
-- meaning: how the distances of distance_means_model go with N and with the number of keys: lines on two logarithmic axes
--          through every head's mean over sequences; clusters are KV groups
{% else %}
-- meaning: how a head's distances go with N at one query, and with the number of keys at one N: lines on two logarithmic
--          axes through those of every sequence; clusters are sequences. N runs over a log grid up to half of the keys,
--          beyond which the distance grows again whatever the head; r2 says how far it is a power of N at all
{% endif %}
CREATE TABLE distance_fits{{ "_model" if model }} (
{{ key_columns("study") }}
    measure VARCHAR NOT NULL, -- what is fitted: 'distance', or 'random_distance'{{ ", over the norm of the output" if model }}
    axis VARCHAR NOT NULL, -- against what: 'n', or 'n_keys', which takes queries of several numbers of keys
    query INTEGER, -- position of the query of a fit against n; NULL for one against n_keys
    n INTEGER, -- N of a fit against n_keys, a power of two; NULL for one against n
{% if not model %}
{{ key_columns("layer", "head") }}
{% endif %}
{{ fit_columns() }}
)
