-- grain:   one row per (study, query{{ ", layer, head" if not model }})
-- inputs:  selection_means{{ "_model" if model }}
{% if model %}
-- meaning: the critical N of the model, from its mean distances divided by the norm of each head's output
{% else %}
-- meaning: the critical N of every head: the first at which its selected keys are, on average over sequences, no
--          farther from the rest than N random keys. If the largest contributions point along the sum of all of them it
--          is 1, and nearest_n and last_nearer_n are more informative
{% endif %}
CREATE OR REPLACE VIEW critical_n{{ "_model" if model }} AS
WITH compared AS (
    SELECT
        *,
        relative_distance <= relative_random_distance * (1 + 1e-6) AS is_nearer,
        max(n) OVER (PARTITION BY study, query{{ ", layer, head" if not model }}) AS largest_n
    FROM selection_means{{ "_model" if model }}
)
SELECT
{{ key_names("study", "query", "layer", "head", of_model=model) }}
    max(n) AS last_n, -- largest N
    min(n) FILTER (WHERE is_nearer) AS critical_n, -- the critical N, with a tolerance of a millionth of the distance; NULL if the selected keys are always farther
    critical_n / (last_n + 1) AS critical_share, -- critical_n divided by the number of keys
    max(n) FILTER (WHERE is_nearer AND 2 * n <= largest_n + 1) AS last_nearer_n, -- last N, up to half of the keys, at which the selected keys are no farther; NULL if there is none
    arg_min(n, (relative_distance, n)) AS nearest_n, -- N of the smallest distance; the smallest such N in case of ties
FROM compared
GROUP BY study, query{{ ", layer, head" if not model }}
