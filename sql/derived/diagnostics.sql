-- inputs:  selection_counts
-- meaning: the geometry of s_N, mean over sequences; sorted, so that the rows of one head are contiguous
SELECT
    $study AS study,
    query,
    layer,
    head,
    n,
    count(*) AS sequences,
{% for quantity in ("norm_s", "norm_s_without_sink", "norm_s_without_last", "cos_sink", "cos_last") %}
    avg({{ quantity }}::DOUBLE) AS {{ quantity }}{{ "," if not loop.last }}
{% endfor %}
FROM selection_counts
WHERE study = $study
GROUP BY query, layer, head, n
ORDER BY query, layer, head, n
