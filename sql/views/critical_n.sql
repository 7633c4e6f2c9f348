-- grain:   one row per (study, query{{ ", layer, head" if not model }})
-- inputs:  distance_means{{ "_model" if model }}
{% if model %}
-- meaning: the critical N of the model, by its mean distances over the norm of each head's output
{% else %}
-- meaning: the critical N of every head: the first at which its selected keys are, on average over sequences, no farther
--          from the rest than N keys at random
{% endif %}
{% set prefix = "relative_" if model else "" %}
CREATE OR REPLACE VIEW critical_n{{ "_model" if model }} AS
SELECT
{{ key_names("study", "query") }}
{% if not model %}
{{ key_names("layer", "head") }}
{% endif %}
    max(n) AS last_n, -- largest N
    min(n) FILTER (
        WHERE {{ prefix }}distance <= {{ prefix }}random_distance * (1 + 1e-6)
    ) AS critical_n, -- the critical N, up to a millionth of the distance; NULL if the selected keys are always farther
    critical_n / (last_n + 1) AS critical_share, -- critical_n over the number of keys
FROM distance_means{{ "_model" if model }}
GROUP BY study, query{{ ", layer, head" if not model }}
