-- grain:   one row per (study, sequence, query, layer, head, n)
-- inputs:  selection_counts, heads, value_scales, delta, margin, sink_margin
-- meaning: the margins of eq. 8 at every selection, in model units, and all other inputs of the lower bounds: see the
--          macro lower_bounds
CREATE OR REPLACE VIEW margins AS
SELECT
{{ key_names("study", "sequence", "query", "layer", "head") }}
    n, -- N, the number of selected keys, 1 to n_keys - 1
    n_keys, -- number of keys the query may attend to
    head_dim, -- d, length of one value state
    value_scale, -- C of this sequence and query, by which margins are divided in scale 'unit'
    delta(a_min_in, a_max_out, s_in, rho_out) AS delta, -- Δ (eq. 8); NULL if only the sink is selected
    margin(a_min_in, a_max_in, a_max_out, s_in, rho_out) AS margin, -- Δ/B; NULL where Δ is, or if B is 0
    sink_margin(a_0, a_max_in, a_max_out, s_in, rho_out) AS sink_margin, -- Δ_0/B; NULL also without the sink
FROM selection_counts
LEFT JOIN heads USING (study, layer, head)
LEFT JOIN value_scales USING (study, sequence, query, layer, kv_head)
