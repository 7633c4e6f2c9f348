-- grain:   one row per (study, query, layer, head, arithmetic)
-- inputs:  weights and value states of the tensor store
-- meaning: what plain arithmetic makes of the counts: K_in, K_out and what follows from them as ||s_N - y|| in that
--          arithmetic gives them, beside the exact ones; of some heads, evenly spaced over the model, at the last query
--          of a few sequences; differences are plain less exact, means over sequences and N
CREATE TABLE arithmetic (
{{ key_columns("study", "query", "layer", "head") }}
    arithmetic VARCHAR NOT NULL, -- 'float32_loop': differences in float32; 'float32_cdist': torch.cdist; 'float64_literal': differences in float64
    sequences INTEGER NOT NULL, -- number of sequences, the first ones of the study
    n_values INTEGER NOT NULL, -- number of N, evenly spaced from 1 to n_keys - 1, with N = 4 among them if there is one
    recall_differs DOUBLE NOT NULL, -- share of them whose K_in is not the exact one
    precision_differs DOUBLE NOT NULL, -- share of them whose K_out is not the exact one
    recall_difference DOUBLE NOT NULL, -- mean difference of Recall
    precision_difference DOUBLE NOT NULL, -- mean difference of Precision
    recall_at_4 DOUBLE, -- exact mean Recall at N = 4; NULL for four keys or fewer
    precision_at_4 DOUBLE, -- exact mean Precision at N = 4
    recall_difference_at_4 DOUBLE, -- mean difference of Recall at N = 4
    precision_difference_at_4 DOUBLE -- mean difference of Precision at N = 4
)
