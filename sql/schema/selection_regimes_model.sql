-- grain:   one row per (study, query, regime); regimes without any N have no row
-- inputs:  assumption_weights_model, attention_by_position, bound_means
-- meaning: Table 2 for the whole model: mean weight over heads, and mean Δ/B over heads
CREATE TABLE selection_regimes_model (
    study VARCHAR NOT NULL, -- name of the study
    query INTEGER NOT NULL, -- position of the query in its sequence
    regime VARCHAR NOT NULL, -- 'I': N = 1; 'II': up to m_1; 'III': up to m_2; 'IV': up to m_3; 'V': from m_3 on
    first_n INTEGER NOT NULL, -- first N of the regime: 1, 2, m_1, m_2 or m_3
    last_n INTEGER NOT NULL, -- last N of the regime
    margin_first DOUBLE, -- mean Δ/B at first_n; NULL where nothing but the sink is selected
    margin_last DOUBLE, -- mean Δ/B at last_n
    slope DOUBLE, -- slope of mean Δ/B over log N within the regime; NULL if it has one N
    positive_share DOUBLE -- share of the regime's N at which mean Δ/B is above 0
)
