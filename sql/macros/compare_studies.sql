-- grain:   one row per (metric, n) that both studies reach; metric is precision, recall, f_r_max or f_r_min
-- inputs:  selection_means_model, studies, last_query; names of two studies
-- meaning: mean metrics of two models over N, side by side: FROM compare_studies('gpt2', 'llama-2-7b'); at the last
--          query of each, or at others to compare contexts: compare_studies('gpt2', 'gpt2', query_a := 63); difference
--          is b minus a; apart: whether their 95 % intervals are disjoint, NULL for one sequence
CREATE MACRO compare_studies(a, b, query_a := NULL, query_b := NULL) AS TABLE
WITH means AS (
    SELECT study, query, n, metric, mean, low, high
    FROM selection_means_model
    UNPIVOT INCLUDE NULLS (
        (mean, low, high) FOR metric IN (
{% for metric in metrics %}
            ({{ metric }}, {{ metric }}_low, {{ metric }}_high) AS '{{ metric }}'{{ "," if not loop.last }}
{% endfor %}
        )
    )
),
landed AS (
    SELECT list(study) AS names
    FROM studies
),
asked AS (
    SELECT
        CASE WHEN list_contains(names, a) THEN a ELSE error('there is no study ' || a) END AS study_a,
        CASE WHEN list_contains(names, b) THEN b ELSE error('there is no study ' || b) END AS study_b,
        coalesce(query_a, last_query(a)) AS last_a,
        coalesce(query_b, last_query(b)) AS last_b
    FROM landed
)
SELECT
    metric, n,
    of_a.query AS query_a,
    of_b.query AS query_b,
    of_a.mean AS mean_a,
    of_b.mean AS mean_b,
    mean_b - mean_a AS difference,
    of_a.high < of_b.low OR of_b.high < of_a.low AS apart
FROM asked
JOIN means AS of_a ON of_a.study = study_a AND of_a.query = last_a
JOIN means AS of_b USING (metric, n)
WHERE of_b.study = study_b AND of_b.query = last_b
