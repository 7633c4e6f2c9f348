-- grain:   one row per (study, query, layer, head, n)
-- inputs:  norms and cosines of s_N in the metrics store
-- meaning: geometry of s_N in a head, mean over sequences: its norm, also without the sink's and the last token's part,
--          and its cosines with their value states (Figure 7)
-- rows:    head_n
CREATE TABLE diagnostics (
{{ key_columns("study", "query", "layer", "head", "n", "sequences") }}
    norm_s DOUBLE NOT NULL, -- mean norm of s_N, in model units [0, inf)
    norm_s_without_sink DOUBLE, -- mean norm of s_N without the sink's part; NULL if a window hides the sink [0, inf)
    norm_s_without_last DOUBLE NOT NULL, -- mean norm of s_N without the last token's part [0, inf)
    cos_sink DOUBLE, -- mean cosine between s_N and the sink's value state; NULL if the sink is hidden or its norm is always 0 [-1, 1]
    cos_last DOUBLE -- mean cosine between s_N and the last token's value state; NULL if that norm is always 0 [-1, 1]
)
