-- grain:   one row per (study, query, threshold, factor)
-- inputs:  kinds_moved, head_taxonomy
-- meaning: how kinds change when one threshold of the taxonomy is changed by 10 %, halved or doubled, and all others
--          are fixed: how far 'Other' depends on thresholds that the paper does not give
CREATE TABLE taxonomy_sensitivity (
{{ key_columns("study", "query") }}
    threshold VARCHAR NOT NULL, -- name of the threshold, a parameter of the macro taxonomy
    factor DOUBLE NOT NULL, -- 0.5, 0.9, 1.1 or 2
    value DOUBLE NOT NULL, -- the threshold times the factor
    heads INTEGER NOT NULL, -- number of heads
    changed INTEGER NOT NULL, -- number of those whose label differs from that in head_taxonomy [0, inf)
    other_share DOUBLE NOT NULL -- share of sequences and heads that meet no rule [0, 1]
)
