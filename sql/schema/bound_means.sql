-- grain:   one row per (study, query, layer, head, n, family, kappa)
-- inputs:  ingredients, upper bounds and scale-free bounds in the metrics store
-- meaning: bounds on the expected Precision, Recall and F of a head, mean over sequences; NULL where there is none
-- rows:    head_n * families
CREATE TABLE bound_means (
{{ key_columns("study", "query", "layer", "head", "n") }}
    family VARCHAR NOT NULL, -- 'printed': Theorems 1-2; 'scale_free': lower bounds that hold for independent directions
    kappa DOUBLE, -- κ of the printed bounds; NULL for the scale-free ones, which have none
    scale VARCHAR, -- scale of the printed bounds, 'unit' or 'raw'; NULL for the scale-free ones
    premise_share DOUBLE, -- share of sequences with Δ > 0, the premise of the theorems; NULL for the scale-free ones [0, 1]
    margin DOUBLE, -- mean of Δ/B over sequences (eq. 8), Δ with its sign; NULL for the scale-free ones
    precision_lower DOUBLE, -- lower bound of P(r_max, N) (eq. 12) [0, 1]
    precision_upper DOUBLE, -- upper bound of P(r_max, N) (eq. 13) [0, 1]
    recall_lower DOUBLE, -- lower bound of R(r_min, N) (eq. 14) [0, 1]
    recall_upper DOUBLE, -- upper bound of R(r_min, N) (eq. 15) [0, 1]
    f_r_max_lower DOUBLE, -- lower bound of F(r_max, N): eq. 17; scale-free: on a chord from that of P [0, 1]
    f_r_max_upper DOUBLE, -- upper bound of F(r_max, N) (eq. 17) [0, 1]
    f_r_min_lower DOUBLE, -- lower bound of F(r_min, N): eq. 16, which eq. 14 does not imply; scale-free: that of R [0, 1]
    f_r_min_upper DOUBLE -- upper bound of F(r_min, N) (eq. 16) [0, 1]
)
