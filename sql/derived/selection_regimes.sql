-- inputs:  regimes_by_sequence
-- meaning: Table 2 {{ "of the whole model" if model else "of every head with a fit" }}
{% set place = "query" if model else "query, layer, head" %}
WITH all_of_them AS (
    SELECT {{ place }}, count(*) AS rows
    FROM regimes_by_sequence
    WHERE study = $study AND regime = 'I'
    GROUP BY {{ place }}
)
SELECT
    $study AS study,
    {{ place }},
    regime,
    count(*) / any_value(rows) AS share,
    quantile_disc(first_n, 0.5) AS first_n,
    quantile_disc(last_n, 0.5) AS last_n,
    avg(margin_first) AS margin_first,
    avg(margin_last) AS margin_last,
    avg(slope) AS slope,
    avg(positive_share) AS positive_share
FROM regimes_by_sequence
JOIN all_of_them USING ({{ place }})
WHERE study = $study
GROUP BY {{ place }}, regime
ORDER BY {{ place }}, regime
