-- grain:   one row per (study, query{{ ", layer, head" if not model }})
-- inputs:  distance_means{{ "_model" if model }}
{% if model %}
-- meaning: the critical N of the model, by its mean distances over the norm of each head's output
{% else %}
-- meaning: the critical N of every head: the first at which its selected keys are, on average over sequences, no farther
--          from the rest than N keys at random. Where the largest contributions point along the sum of all of them it is
--          1, and nearest_n and last_nearer_n tell more
{% endif %}
{% set prefix = "relative_" if model else "" %}
CREATE OR REPLACE VIEW critical_n{{ "_model" if model }} AS
WITH compared AS (
    SELECT
        *,
        {{ prefix }}distance AS distance_of,
        {{ prefix }}distance <= {{ prefix }}random_distance * (1 + 1e-6) AS is_nearer,
        max(n) OVER (PARTITION BY study, query{{ ", layer, head" if not model }}) AS largest_n
    FROM distance_means{{ "_model" if model }}
)
SELECT
{{ key_names("study", "query") }}
{% if not model %}
{{ key_names("layer", "head") }}
{% endif %}
    max(n) AS last_n, -- largest N
    min(n) FILTER (WHERE is_nearer) AS critical_n, -- the critical N, up to a millionth of the distance; NULL if the selected keys are always farther
    critical_n / (last_n + 1) AS critical_share, -- critical_n over the number of keys
    max(n) FILTER (
        WHERE is_nearer AND 2 * n <= largest_n + 1
    ) AS last_nearer_n, -- last N, up to half of the keys, at which the selected keys are no farther; NULL if there is none
    arg_min(n, (distance_of, n)) AS nearest_n, -- N of the smallest distance, the smaller of several
FROM compared
GROUP BY study, query{{ ", layer, head" if not model }}
