-- grain:   one row per (study, query, layer, head, threshold, factor)
-- inputs:  head_signatures, label_heads, taxonomy_thresholds
-- meaning: the label of every head when one threshold of the taxonomy is changed by 10 %, halved or doubled, and all
--          others are fixed
CREATE TABLE kinds_moved (
{{ key_columns("study", "query", "layer", "head") }}
    threshold VARCHAR NOT NULL, -- name of the threshold, a parameter of the macro taxonomy
    factor DOUBLE NOT NULL, -- 0.5, 0.9, 1.1 or 2
    value DOUBLE NOT NULL, -- the threshold times the factor
    label VARCHAR NOT NULL, -- the kind of more than half of the sequences, or 'Other'
    other_share DOUBLE NOT NULL -- share of sequences that meet no rule [0, 1]
)
