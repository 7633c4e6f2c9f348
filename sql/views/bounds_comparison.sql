-- grain:   one row per (study, query, layer, head, n, family, kappa)
-- inputs:  selection_means, bound_means, inside
-- meaning: mean Precision, Recall and F of every head beside the bounds on their expectation (Theorems 1-2, Corollary 1);
--          rows outside are rows like any other
CREATE OR REPLACE VIEW bounds_comparison AS
SELECT
    study, -- name of the study
    query, -- position of the query in its sequence
    layer, -- layer, from 0
    head, -- query head, from 0
    n, -- N, the number of selected keys
    family, -- 'printed': Theorems 1-2; 'scale_free': lower bounds that hold for independent directions
    kappa, -- κ of the printed bounds; NULL for the scale-free ones, which have none
    scale, -- scale of the printed bounds, 'unit' or 'raw'; NULL for the scale-free ones
    sequences, -- number of sequences averaged
    premise_share, -- share of sequences with Δ > 0, the premise of the theorems; NULL for the scale-free ones
    margin, -- mean of Δ/B over sequences (eq. 8), Δ with its sign; NULL for the scale-free ones
    precision, -- mean Precision P(r_max, N) over sequences
    precision_ci_low, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    precision_ci_high, -- upper end of that interval
    precision_lower, -- mean lower bound of Precision P(r_max, N); NULL where there is none
    precision_upper, -- mean upper bound of Precision P(r_max, N); NULL where there is none
    inside(family, precision, precision_lower, precision_upper) AS precision_inside, -- whether the mean lies within
    recall, -- mean Recall R(r_min, N) over sequences
    recall_ci_low, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    recall_ci_high, -- upper end of that interval
    recall_lower, -- mean lower bound of Recall R(r_min, N); NULL where there is none
    recall_upper, -- mean upper bound of Recall R(r_min, N); NULL where there is none
    inside(family, recall, recall_lower, recall_upper) AS recall_inside, -- whether the mean lies within
    f_r_max, -- mean F(r_max, N) over sequences
    f_r_max_ci_low, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    f_r_max_ci_high, -- upper end of that interval
    f_r_max_lower, -- mean lower bound of F(r_max, N); NULL where there is none
    f_r_max_upper, -- mean upper bound of F(r_max, N); NULL where there is none
    inside(family, f_r_max, f_r_max_lower, f_r_max_upper) AS f_r_max_inside, -- whether the mean lies within
    f_r_min, -- mean F(r_min, N) over sequences
    f_r_min_ci_low, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    f_r_min_ci_high, -- upper end of that interval
    f_r_min_lower, -- mean lower bound of F(r_min, N); NULL where there is none
    f_r_min_upper, -- mean upper bound of F(r_min, N); NULL where there is none
    inside(family, f_r_min, f_r_min_lower, f_r_min_upper) AS f_r_min_inside, -- whether the mean lies within
FROM selection_means
JOIN bound_means USING (study, query, layer, head, n)
