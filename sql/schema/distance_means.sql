-- grain:   one row per (study, query{{ ", layer, head" if not model }}, n)
-- inputs:  distances and norms of the metrics store
{% if model %}
-- meaning: the distances of distance_means for the whole model: means over the heads of each sequence, then over
--          sequences
-- rows:    query_n
{% else %}
-- meaning: mean over sequences of the distance of s_N from the sum of the weighted value states left out (arXiv
--          2508.17821; only its abstract and secondary accounts were available), and the same for N random keys: the
--          root mean square over all N-subsets, from the macro random_subset_distance; both divided by the norm of the
--          head's output, so that heads with long and with short outputs count alike
-- rows:    head_n
{% endif %}
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
{% if model %}
{{ interval_columns("relative_distance", "mean distance over the norm of the head's output; NULL if that is 0", "[0, inf)") }}
{% else %}
    relative_distance FLOAT, -- mean distance over the norm of the head's output; NULL if that is 0 in every sequence [0, inf)
{% endif %}
    relative_random_distance {{ "DOUBLE" if model else "FLOAT" }} -- the same for N random keys [0, inf)
)
