-- grain:   one row per (study, query, family, kappa)
-- inputs:  bounds_comparison
-- meaning: how often the bounds hold over (head, N), how wide they are, and how often the theorems' premise holds; wide
--          bounds cover everything, so coverage is not evidence without the other two; at N = 1 Precision and Recall are
--          1 by definition, so the premise is counted for N > 1 only; the best κ is given only if the premise holds in
--          at least 100 rows
CREATE OR REPLACE VIEW coverage AS
WITH compared AS (
    SELECT *, n > 1 AND premise_share > 0.5 AS premised
    FROM bounds_comparison
),
covered AS (
    SELECT
        study, query, family, kappa, scale,
        count(precision_inside) AS bounded_rows,
        avg(COLUMNS('^(.*)_inside$')::INTEGER) AS '\1_coverage',
        avg(precision_upper - precision_lower) AS precision_width,
        avg(recall_upper - recall_lower) AS recall_width,
        avg(premise_share) FILTER (WHERE n > 1) AS premise_share,
        count(precision_inside) FILTER (WHERE premised) AS premise_rows,
        avg(precision_inside::INTEGER) FILTER (WHERE premised) AS precision_coverage_premise,
        avg(recall_inside::INTEGER) FILTER (WHERE premised) AS recall_coverage_premise,
        avg(precision_upper - precision_lower + recall_upper - recall_lower) FILTER (WHERE premised) AS width_premise
    FROM compared
    GROUP BY study, query, family, kappa, scale
),
judged AS (
    SELECT
        *,
        least(precision_coverage_premise, recall_coverage_premise) AS worse_coverage,
        worse_coverage >= 0.95 AS covers,
        CASE WHEN covers THEN -width_premise ELSE worse_coverage END AS merit,
        family = 'printed' AND premise_rows >= 100 AS eligible
    FROM covered
),
ranked AS (
    SELECT
        *,
        eligible AND row_number() OVER by_merit = 1 AS serves_best,
        family = 'printed' AND row_number() OVER by_kappa = (count(*) OVER of_family + 1) // 2 AS in_the_middle
    FROM judged
    WINDOW
        of_family AS (PARTITION BY study, query, family),
        by_kappa AS (PARTITION BY study, query, family ORDER BY kappa),
        by_merit AS (
            PARTITION BY study, query, family
            ORDER BY eligible DESC, covers DESC NULLS LAST, merit DESC NULLS LAST, kappa
        )
)
SELECT
{{ key_names("study", "query") }}
    family, -- 'printed': Theorems 1-2; 'scale_free': lower bounds that hold for independent directions
    kappa, -- κ of the printed bounds; NULL for the scale-free ones, which have none
    scale, -- scale of the printed bounds, 'unit' or 'raw'; NULL for the scale-free ones
    bounded_rows AS rows, -- number of (head, N) that have bounds
    precision_coverage, -- share of rows whose mean Precision lies within its bounds
    recall_coverage, -- share of rows whose mean Recall lies within its bounds
    f_r_max_coverage, -- share of rows whose mean F(r_max, N) lies within its bounds
    f_r_min_coverage, -- share of rows whose mean F(r_min, N) lies within its bounds
    precision_width, -- mean of upper minus lower bound of Precision; NULL for the scale-free family
    recall_width, -- mean of upper minus lower bound of Recall; NULL for the scale-free family
    premise_share, -- share of selections of N > 1 with Δ > 0, the theorems' premise; NULL for the scale-free family
    premise_rows, -- number of rows with N > 1 and Δ > 0 in most sequences
    precision_coverage_premise, -- precision_coverage among those rows; NULL if there are none
    recall_coverage_premise, -- recall_coverage among those rows; NULL if there are none
    serves_best, -- whether κ is the one of smallest width among those that cover 95 % of the premise rows, or else of highest coverage; false for all κ if there are fewer than 100 such rows
    serves_best OR (in_the_middle AND NOT bool_or(serves_best) OVER (PARTITION BY study, query)) AS shown, -- whether figures show this κ: the best one, or else the middle one
FROM ranked
