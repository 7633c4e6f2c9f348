-- grain:   one row per (study, quantity, layer)
-- inputs:  attention_rows, head_levels
-- meaning: means of a quantity over the heads of each layer at the last query, with intervals over sequences; only layers
--          that have it in every sequence
CREATE TABLE layer_profiles (
{{ key_columns("study") }}
    quantity VARCHAR NOT NULL, -- 'sink_weight', or mean over ln N: 'recall' or 'precision_excess' (Precision above its floor)
    layer INTEGER NOT NULL, -- layer, from 0
{{ interval_columns("value", "mean over heads and sequences", "[0, 1]") }}
)
