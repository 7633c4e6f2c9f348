-- grain:   one row per (n, metric); n is a power of two above 1
-- inputs:  compare_studies, studies; $study
-- meaning: How does this study differ from the next one by name (or from itself if it is the only one), and at which n
--          are intervals disjoint?
FROM compare_studies(
    $study,
    (FROM studies SELECT coalesce(min(study) FILTER (WHERE study > $study), min(study)))
)
SELECT n, metric, mean_a, mean_b, difference, apart
WHERE metric IN ('precision', 'recall') AND n > 1 AND n & (n - 1) = 0
ORDER BY n, metric
