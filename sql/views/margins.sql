-- grain:   one row per (study, sequence, query, layer, head, n)
-- inputs:  selection_counts, heads, value_scales
-- meaning: the margins of eq. 8 at every selection, in model units, and all other inputs of the lower bounds: see the
--          macro lower_bounds
CREATE OR REPLACE VIEW margins AS
WITH lengths AS (
    SELECT
        * REPLACE (a_0::DOUBLE AS a_0, a_min_in::DOUBLE AS a_min_in, a_max_out::DOUBLE AS a_max_out, s_in::DOUBLE AS s_in),
        s_in::DOUBLE * rho_out::DOUBLE AS overlap,
        nullif(a_max_in::DOUBLE + a_max_out::DOUBLE + s_in::DOUBLE, 0) AS b
    FROM selection_counts
)
SELECT
{{ key_names("study", "sequence", "query", "layer", "head") }}
    n, -- N, the number of selected keys, 1 to n_keys - 1
    n_keys, -- number of keys the query may attend to
    head_dim, -- d, length of one value state
    value_scale, -- C of this sequence and query, by which margins are divided in scale 'unit'
    a_min_in * a_min_in - 2 * a_max_out * overlap AS delta, -- Δ, by how much the smallest selected key outweighs the overlap of the keys left out with the sum; NULL if only the sink is selected
    delta / b AS margin, -- Δ/B; NULL where Δ is, or if B is 0
    (a_0 * a_0 - overlap * overlap) / b AS sink_margin, -- Δ_0/B, where ρ_in of eq. 8 reads ρ_out; NULL also without the sink
FROM lengths
LEFT JOIN heads USING (study, layer, head)
LEFT JOIN value_scales USING (study, sequence, query, layer, kv_head)
