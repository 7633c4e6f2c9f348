-- grain:   one row per (study, query{{ ", layer, head" if not model }}, n, family, kappa)
-- inputs:  selection_means{{ "_model" if model }}, bound_means, inside
{% if model %}
-- meaning: mean Precision, Recall and F of the whole model and the mean of its heads' bounds (Figure 5)
{% else %}
-- meaning: mean Precision, Recall and F of every head and the bounds on their expectation (Theorems 1-2, Corollary 1);
--          rows that lie outside their bounds are included
{% endif %}
{% set over = "heads and sequences" if model else "sequences" %}
CREATE OR REPLACE VIEW bounds_comparison{{ "_model" if model }} AS
{% if model %}
WITH bounds AS (
    SELECT
        study, query, n, family, kappa, scale,
        count(precision_lower) AS bounded_heads,
        avg(COLUMNS('premise_share|margin|_lower|_upper'))
    FROM bound_means
    GROUP BY study, query, n, family, kappa, scale
)
{% endif %}
SELECT
{{ key_names("study", "query", "layer", "head", "n", of_model=model) }}
    family, -- 'printed': Theorems 1-2; 'scale_free': lower bounds that hold for independent directions
    kappa, -- κ of the printed bounds; NULL for the scale-free ones, which have none
    scale, -- scale of the printed bounds, 'unit' or 'raw'; NULL for the scale-free ones
{% if model %}
    heads, -- number of heads averaged: those that attend to more than n keys
    bounded_heads, -- number of those that have bounds; means of bounds are over them
{% endif %}
{{ key_names("sequences") }}
    premise_share, -- share of {{ "(head, sequence)" if model else "sequences" }} with Δ > 0, the premise of the theorems; NULL for the scale-free ones
    margin, -- mean of Δ/B over {{ "heads" if model else "sequences" }} (eq. 8), Δ with its sign; NULL for the scale-free ones
{% for metric, meaning in metrics.items() %}
    {{ metric }}, -- mean {{ meaning }} over {{ over }}
    {{ metric }}_low, -- lower end of its 95 % interval over sequences; NULL for one sequence
    {{ metric }}_high, -- upper end of that interval
    {{ metric }}_lower, -- mean lower bound of {{ meaning }}; NULL where there is none
    {{ metric }}_upper, -- mean upper bound of {{ meaning }}; NULL where there is none
    inside(family, {{ metric }}, {{ metric }}_lower, {{ metric }}_upper) AS {{ metric }}_inside, -- whether the mean lies within
{% endfor %}
FROM selection_means{{ "_model" if model }}
JOIN {{ "bounds USING (study, query, n)" if model else "bound_means USING (study, query, layer, head, n)" }}
