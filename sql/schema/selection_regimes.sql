-- grain:   one row per (study, query{{ ", layer, head" if not model }}, regime)
-- inputs:  regimes_by_sequence
{% if model %}
-- meaning: Table 2 for the whole model: medians and means over heads and sequences
{% else %}
-- meaning: Table 2 for every head with a fit of Assumption 3: medians and means over sequences
{% endif %}
{% set over = "(head, sequence)" if model else "sequences" %}
CREATE TABLE selection_regimes{{ "_model" if model }} (
{{ key_columns("study", "query") }}
{% if not model %}
{{ key_columns("layer", "head") }}
{% endif %}
    regime VARCHAR NOT NULL, -- 'I': N = 1; 'II': up to m_1; 'III': up to m_2; 'IV': up to m_3; 'V': from m_3 on
    share DOUBLE NOT NULL, -- share of {{ over }} that have the regime; the other columns are over these only
    first_n INTEGER NOT NULL, -- median of its first N, the lower of two
    last_n INTEGER NOT NULL, -- median of its last N, the lower of two
    margin_first DOUBLE, -- mean Δ/B at the first N; NULL if only the sink is selected
    margin_last DOUBLE, -- mean Δ/B at the last N
    slope DOUBLE, -- mean slope of Δ/B over ln N within the regime; NULL if it has one N everywhere
    positive_share DOUBLE -- mean share of ln N, within the regime, with Δ > 0
)
