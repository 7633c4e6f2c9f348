-- grain:   one row per (study, query{{ ", layer, head" if not model }}, regime)
-- inputs:  assumption_weights{{ "_model" if model }}, attention_by_position, bound_means, selection_regimes_of
{% if model %}
-- meaning: Table 2 of the whole model, as if it were one head with the mean weight and the mean Δ/B of all
{% else %}
-- meaning: Table 2 of every head with a fit; Δ/B is the same for every κ
{% endif %}
{% set place = "0 AS layer, 0 AS head" if model else "layer, head" %}
WITH fits AS (
    SELECT query, {{ place }}, eta, omega, t_1, t_2
    FROM assumption_weights{{ "_model" if model }}
    WHERE study = $study AND status = 'ok'
),
weights AS (
    SELECT query, {{ place }}, position, avg(mean_weight) AS weight
    FROM attention_by_position
    WHERE study = $study
    GROUP BY ALL
),
margins_by_n AS (
    SELECT query, {{ place }}, n, avg(margin) AS margin
    FROM (
        SELECT query, layer, head, n, any_value(margin) AS margin
        FROM bound_means
        WHERE study = $study AND family = 'printed'
        GROUP BY query, layer, head, n
    )
    GROUP BY ALL
)
SELECT $study AS study, *{{ " EXCLUDE (layer, head)" if model }}
FROM selection_regimes_of(fits, weights, margins_by_n)
