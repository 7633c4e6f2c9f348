-- inputs:  selection_counts, attention_rows, random_subset_distance
-- meaning: mean over sequences of the column distance_rest, divided by the norm of the output
SELECT
    study,
    query,
    layer,
    head,
    n,
    count(*)::INTEGER AS sequences,
    avg(distance_rest::DOUBLE / nullif(norm_output, 0)) AS relative_distance,
    avg(
        random_subset_distance(norm_output, norm_contributions, n, selection_counts.n_keys) / nullif(norm_output, 0)
    ) AS relative_random_distance
FROM selection_counts
JOIN attention_rows USING (study, sequence, query, layer, head)
WHERE study = $study
GROUP BY study, query, layer, head, n
