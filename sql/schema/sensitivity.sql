-- grain:   one row per (study, sequence, query, layer, head, temperature)
-- inputs:  weights; setting temperatures
-- meaning: how strongly the weights react to changes of their logits: the spectral norm of (diag p - p p^T) / T, the
--          Jacobian of softmax(l / T) with respect to l, for the weights p at that temperature; see the view
--          sensitivity_bounds
-- rows:    sequences * all_head_queries * temperatures
CREATE TABLE sensitivity (
{{ key_columns("study", "sequence", "query", "layer", "head", "temperature") }}
    spectral_norm DOUBLE NOT NULL -- largest change of the weights for a unit change of the logits, both in Euclidean length [0, inf)
)
