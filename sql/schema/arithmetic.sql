-- grain:   one row per (study, query, layer, head, arithmetic)
-- inputs:  weights and value states of the tensor store
-- meaning: effect of floating-point arithmetic on the counts: K_in, K_out and the metrics derived from them, with ||s_N
--          - y|| computed as named, compared with the exact ones; for some heads, evenly spaced over the model, at the
--          last query of a few sequences; differences are plain minus exact, means over sequences and N
CREATE TABLE arithmetic (
{{ key_columns("study", "query", "layer", "head") }}
    arithmetic VARCHAR NOT NULL, -- 'float32_loop': differences in float32; 'float32_cdist': torch.cdist; 'float64_literal': differences in float64
    sequences INTEGER NOT NULL, -- number of sequences, the first of the study
    n_values INTEGER NOT NULL, -- number of values of N, evenly spaced from 1 to n_keys - 1, including N = 4 if it exists
    recall_differs DOUBLE NOT NULL, -- share of these N whose K_in differs from the exact one
    precision_differs DOUBLE NOT NULL, -- share of these N whose K_out differs from the exact one
    recall_difference DOUBLE NOT NULL, -- mean difference of Recall
    precision_difference DOUBLE NOT NULL, -- mean difference of Precision
    recall_at_4 DOUBLE, -- exact mean Recall at N = 4; NULL for four keys or fewer
    precision_at_4 DOUBLE, -- exact mean Precision at N = 4
    recall_difference_at_4 DOUBLE, -- mean difference of Recall at N = 4
    precision_difference_at_4 DOUBLE -- mean difference of Precision at N = 4
)
