-- grain:   one row per (study, query{{ ", layer, head" if not model }}, n)
-- inputs:  distances and norms of the metrics store
{% if model %}
-- meaning: the distances of distance_means divided by the norm of the head's output, so that heads with long and with
--          short outputs count alike; mean over heads and sequences
{% else %}
-- meaning: mean over sequences of the distance of s_N from the sum of the weighted value states left out (arXiv
--          2508.17821; only its abstract and secondary accounts were available), and the same for N random keys: the
--          root mean square over all N-subsets, from the macro random_subset_distance. At N = n_keys the distance would
--          be the norm of the output
{% endif %}
{% set over = "heads and sequences" if model else "sequences" %}
CREATE TABLE distance_means{{ "_model" if model }} (
{{ key_columns("study", "query") }}
{% if not model %}
{{ key_columns("layer", "head") }}
{% endif %}
{{ key_columns("n") }}
{% if model %}
{{ key_columns("heads") }}
{% endif %}
{{ key_columns("sequences") }}
{% if not model %}
    distance DOUBLE NOT NULL, -- mean distance of s_N from the rest, in model units
    distance_se DOUBLE, -- its standard error over sequences; NULL for one
    random_distance DOUBLE NOT NULL, -- the same for N random keys (root mean square), mean over sequences, in model units
{% endif %}
    relative_distance DOUBLE, -- mean over {{ over }} of the distance divided by the norm of the head's output; NULL if that is 0
    relative_distance_se DOUBLE, -- its standard error over sequences; NULL for one
    relative_random_distance DOUBLE -- the same for N random keys
)
