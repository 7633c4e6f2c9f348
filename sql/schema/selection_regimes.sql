-- grain:   one row per (study, query{{ ", layer, head" if not model }}, regime); regimes without any N have no row
-- inputs:  assumption_weights{{ "_model" if model }}, attention_by_position, bound_means
{% if model %}
-- meaning: Table 2 for the whole model: mean weight over heads, and mean Δ/B over heads
{% else %}
-- meaning: Table 2: how the composition of I_N changes with N in a head, and Δ/B with it. Keys are taken in order
--          of mean weight; m_1: first N with a peak (η cos(ωi) > 0) of the oscillation, m_2: first N with a valley or
--          a key of the plateau, m_3: first N with everything but the rest of the plateau. Heads without a fit have no
--          row
{% endif %}
CREATE TABLE selection_regimes{{ "_model" if model }} (
{{ key_columns("study", "query") }}
{% if not model %}
{{ key_columns("layer", "head") }}
{% endif %}
    regime VARCHAR NOT NULL, -- 'I': N = 1; 'II': up to m_1; 'III': up to m_2; 'IV': up to m_3; 'V': from m_3 on
    first_n INTEGER NOT NULL, -- first N of the regime: 1, 2, m_1, m_2 or m_3
    last_n INTEGER NOT NULL, -- last N of the regime
    margin_first DOUBLE, -- mean Δ/B at first_n; NULL where nothing but the sink is selected
    margin_last DOUBLE, -- mean Δ/B at last_n
    slope DOUBLE, -- slope of mean Δ/B over log N within the regime; NULL if it has one N
    positive_share DOUBLE -- share of the regime's N at which mean Δ/B is above 0
)
