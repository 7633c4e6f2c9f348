-- grain:   one row per (metric, row of the comparison); metric is precision, recall, f_r_max or f_r_min
-- inputs:  a relation with the columns that bounds_comparison and bounds_comparison_model share
-- meaning: each metric's mean, interval and bounds as rows, for charts
CREATE MACRO by_metric(comparison) AS TABLE
SELECT
    metric, n, family, kappa, scale, sequences, premise_share, margin, mean, low, high, lower, upper, inside
FROM query_table(comparison)
UNPIVOT INCLUDE NULLS (
    (mean, low, high, lower, upper, inside) FOR metric IN (
{% for m in metrics %}
        ({{ m }}, {{ m }}_low, {{ m }}_high, {{ m }}_lower, {{ m }}_upper, {{ m }}_inside) AS '{{ m }}'{{ "," if not loop.last }}
{% endfor %}
    )
)
