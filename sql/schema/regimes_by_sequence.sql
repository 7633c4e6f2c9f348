-- grain:   one row per (study, sequence, query, layer, head, regime); regimes without any N have no row
-- inputs:  weights of the tensor store, assumption_weights, margins of the metrics store
-- meaning: Table 2, sequence by sequence: how the composition of I_N and Δ/B of the same I_N change with N. Keys are
--          taken in order of weight, ties by lower position first; the kind of a key follows from its position and the
--          fit of the head's mean weights; m_1: first N with a peak (η cos(ωi) > 0) of the oscillation, m_2: first N
--          with a valley or a key of the plateau, m_3: first N with everything but the rest of the plateau. Heads
--          without a fit have no row
CREATE TABLE regimes_by_sequence (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
    regime VARCHAR NOT NULL, -- 'I': N = 1; 'II': up to m_1; 'III': up to m_2; 'IV': up to m_3; 'V': from m_3 on
    first_n INTEGER NOT NULL, -- first N of the regime: 1, 2, m_1, m_2 or m_3
    last_n INTEGER NOT NULL, -- last N of the regime
    margin_first DOUBLE, -- Δ/B at first_n, in the scale of the study's bounds; NULL if only the sink is selected
    margin_last DOUBLE, -- Δ/B at last_n
    slope DOUBLE, -- slope of Δ/B over ln N within the regime; NULL if it has one N
    positive_share DOUBLE -- share of ln N, within the regime, with Δ > 0 [0, 1]
)
