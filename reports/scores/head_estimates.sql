-- grain:   one row per (layer, head, measure)
-- inputs:  separability, query_means, head_pattern_means, last_query; $study
-- meaning: measures of every head with the ends of their intervals: auc_above_shuffled, the AUC at N = 4 at the last
--          query minus that of shuffled value states; recall_every_query and specificity_every_query, their means over
--          queries; sink_share, the mean weight on position 0
SELECT
    layer, head, 'auc_above_shuffled' AS measure, difference AS value, difference_low AS low, difference_high AS high
FROM separability
WHERE
    study = $study AND query = last_query($study) AND layer IS NOT NULL
    AND measure = 'auc' AND null_model = 'shuffled_values' AND n = 4
UNION ALL
SELECT layer, head, replace(measure, 'level', 'every_query'), mean, mean_low, mean_high
FROM query_means
WHERE study = $study AND measure IN ('recall_level', 'specificity_level')
UNION ALL
SELECT layer, head, 'sink_share', share, share_low, share_high
FROM head_pattern_means
WHERE study = $study AND text = 'corpus' AND pattern = 'sink'
ORDER BY layer, head, measure
