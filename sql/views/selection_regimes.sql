-- grain:   one row per (study, query{{ ", layer, head" if not model }}, regime)
-- inputs:  regimes_by_sequence
{% if model %}
-- meaning: Table 2 for the whole model: medians and means over heads and sequences
{% else %}
-- meaning: Table 2 for every head with a fit of Assumption 3: medians and means over sequences
{% endif %}
{% set over = "(head, sequence)" if model else "sequences" %}
{% set place = "study, query" if model else "study, query, layer, head" %}
CREATE OR REPLACE VIEW selection_regimes{{ "_model" if model }} AS
WITH all_of_them AS (
    SELECT {{ place }}, count(*) AS rows
    FROM regimes_by_sequence
    WHERE regime = 'I'
    GROUP BY {{ place }}
)
SELECT
{{ key_names(*place.split(", ")) }}
    regime, -- 'I': N = 1; 'II': up to m_1; 'III': up to m_2; 'IV': up to m_3; 'V': from m_3 on
    count(*) / any_value(rows) AS share, -- share of {{ over }} that have the regime; the other columns are over these only
    quantile_disc(regimes_by_sequence.first_n, 0.5) AS first_n, -- median of its first N, the lower of two
    quantile_disc(regimes_by_sequence.last_n, 0.5) AS last_n, -- median of its last N, the lower of two
    avg(regimes_by_sequence.margin_first) AS margin_first, -- mean Δ/B at the first N; NULL if only the sink is selected
    avg(regimes_by_sequence.margin_last) AS margin_last, -- mean Δ/B at the last N
    avg(regimes_by_sequence.slope) AS slope, -- mean slope of Δ/B over ln N within the regime; NULL if it has one N everywhere
    avg(regimes_by_sequence.positive_share) AS positive_share, -- mean share of ln N, within the regime, with Δ > 0
FROM regimes_by_sequence
JOIN all_of_them USING ({{ place }})
GROUP BY {{ place }}, regime
