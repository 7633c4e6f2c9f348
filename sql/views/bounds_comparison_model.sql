-- grain:   one row per (study, query, n, family, kappa)
-- inputs:  selection_means_model, bound_means, inside
-- meaning: mean Precision, Recall and F of the whole model beside the mean of its heads' bounds (Figure 5)
CREATE OR REPLACE VIEW bounds_comparison_model AS
WITH bounds AS (
    SELECT
        study,
        query,
        n,
        family,
        kappa,
        scale,
        count(precision_lower) AS bounded_heads,
        avg(premise_share) AS premise_share,
        avg(margin) AS margin,
        avg(precision_lower) AS precision_lower,
        avg(precision_upper) AS precision_upper,
        avg(recall_lower) AS recall_lower,
        avg(recall_upper) AS recall_upper,
        avg(f_r_max_lower) AS f_r_max_lower,
        avg(f_r_max_upper) AS f_r_max_upper,
        avg(f_r_min_lower) AS f_r_min_lower,
        avg(f_r_min_upper) AS f_r_min_upper
    FROM bound_means
    GROUP BY study, query, n, family, kappa, scale
)
SELECT
    study, -- name of the study
    query, -- position of the query in its sequence
    n, -- N, the number of selected keys
    family, -- 'printed': Theorems 1-2; 'scale_free': lower bounds that hold for independent directions
    kappa, -- κ of the printed bounds; NULL for the scale-free ones, which have none
    scale, -- scale of the printed bounds, 'unit' or 'raw'; NULL for the scale-free ones
    heads, -- number of heads averaged: those that attend to more than n keys
    bounded_heads, -- number of those that have bounds; means of bounds are over them
    sequences, -- number of sequences averaged
    premise_share, -- share of (head, sequence) with Δ > 0, the premise of the theorems; NULL for the scale-free ones
    margin, -- mean of Δ/B over heads (eq. 8), Δ with its sign; NULL for the scale-free ones
    precision, -- mean Precision P(r_max, N) over heads and sequences
    precision_ci_low, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    precision_ci_high, -- upper end of that interval
    precision_lower, -- mean lower bound of Precision P(r_max, N); NULL where there is none
    precision_upper, -- mean upper bound of Precision P(r_max, N); NULL where there is none
    inside(family, precision, precision_lower, precision_upper) AS precision_inside, -- whether the mean lies within
    recall, -- mean Recall R(r_min, N) over heads and sequences
    recall_ci_low, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    recall_ci_high, -- upper end of that interval
    recall_lower, -- mean lower bound of Recall R(r_min, N); NULL where there is none
    recall_upper, -- mean upper bound of Recall R(r_min, N); NULL where there is none
    inside(family, recall, recall_lower, recall_upper) AS recall_inside, -- whether the mean lies within
    f_r_max, -- mean F(r_max, N) over heads and sequences
    f_r_max_ci_low, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    f_r_max_ci_high, -- upper end of that interval
    f_r_max_lower, -- mean lower bound of F(r_max, N); NULL where there is none
    f_r_max_upper, -- mean upper bound of F(r_max, N); NULL where there is none
    inside(family, f_r_max, f_r_max_lower, f_r_max_upper) AS f_r_max_inside, -- whether the mean lies within
    f_r_min, -- mean F(r_min, N) over heads and sequences
    f_r_min_ci_low, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    f_r_min_ci_high, -- upper end of that interval
    f_r_min_lower, -- mean lower bound of F(r_min, N); NULL where there is none
    f_r_min_upper, -- mean upper bound of F(r_min, N); NULL where there is none
    inside(family, f_r_min, f_r_min_lower, f_r_min_upper) AS f_r_min_inside, -- whether the mean lies within
FROM selection_means_model
JOIN bounds USING (study, query, n)
