-- grain:   one row per (study, query, layer, head, n)
-- inputs:  selection_counts
-- meaning: the geometry of s_N, mean over sequences; sorted, so that the rows of one head are contiguous
SELECT
    $study AS study,
    query,
    layer,
    head,
    n,
    count(*) AS sequences,
    avg(norm_s::DOUBLE) AS norm_s,
    avg(norm_s_without_sink::DOUBLE) AS norm_s_without_sink,
    avg(norm_s_without_last::DOUBLE) AS norm_s_without_last,
    avg(cos_sink::DOUBLE) AS cos_sink,
    avg(cos_last::DOUBLE) AS cos_last
FROM selection_counts
WHERE study = $study
GROUP BY query, layer, head, n
ORDER BY query, layer, head, n
