-- grain:   one row per (study, query, layer, head)
-- inputs:  settings of a synthetic study
-- meaning: the parameters from which a synthetic study's tensors were drawn, for its fits to recover; empty for other
--          studies
CREATE TABLE planted_assumptions (
{{ key_columns("study") }}
    query INTEGER NOT NULL, -- position of the query in its sequence; T_1, T_2 and p_base depend on it
{{ key_columns("layer", "head") }}
    kv_head SMALLINT NOT NULL, -- KV head, from 0; value states are drawn once for each
    c DOUBLE NOT NULL, -- C
    lambda_sink DOUBLE NOT NULL, -- λ
    beta DOUBLE NOT NULL, -- β
    rho_0 DOUBLE NOT NULL, -- ρ_0
    p_sink DOUBLE NOT NULL, -- weight of the sink
    p_base DOUBLE NOT NULL, -- weight of one key on the plateau
    eta DOUBLE NOT NULL, -- η of the oscillation
    eta_growth DOUBLE NOT NULL, -- η of the growth, per position
    omega DOUBLE NOT NULL, -- ω, in radians per position
    t_1 INTEGER NOT NULL, -- T_1
    t_2 INTEGER NOT NULL -- T_2
)
