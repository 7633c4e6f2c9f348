-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  attention_rows, head_levels, concentration
-- meaning: inputs of the taxonomy of heads, sequence by sequence: contributions of the sink, the last token and the
--          rest, change of the output without the sink or the last token, course of the cosines of s_N over ln N (each
--          N has weight 1/N, so that all of ln N counts alike), and the number of keys that contributions are spread
--          over; cosines are NULL for a head that attends to one key
-- rows:    sequences * all_head_queries
CREATE TABLE head_signatures (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
{{ signature_columns() }}
)
