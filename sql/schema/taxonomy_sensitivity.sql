-- grain:   one row per (study, query, threshold, factor)
-- inputs:  head_signatures, head_taxonomy, signature_means, label_heads, taxonomy_thresholds
-- meaning: how many heads change their label when one threshold of the taxonomy changes by 10 % and all others are
--          fixed
CREATE TABLE taxonomy_sensitivity (
    study VARCHAR NOT NULL, -- name of the study
    query INTEGER NOT NULL, -- position of the query in its sequence
    threshold VARCHAR NOT NULL, -- name of the threshold, a parameter of the macro taxonomy
    factor DOUBLE NOT NULL, -- 0.9 or 1.1
    value DOUBLE NOT NULL, -- the threshold times the factor
    heads INTEGER NOT NULL, -- number of heads
    changed INTEGER NOT NULL -- number of those whose label differs from that in head_taxonomy
)
