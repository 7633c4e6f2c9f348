-- grain:   one row per (layer, head)
-- inputs:  head_taxonomy, best_n, elbows, last_query; $study
-- meaning: Which heads are unusual: how far is each from the others of its layer? Every head has a row, as for an
--          export.
FROM head_taxonomy
JOIN best_n('harmonic_mean', last_n := 32) USING (study, query, layer, head)
JOIN elbows USING (study, query, layer, head)
SELECT
    layer, head, label, nearest, agreement, elbow_n, best_n,
    value AS harmonic_mean,
    (value - avg(value) OVER of_layer) / nullif(stddev_pop(value) OVER of_layer, 0) AS deviations
WHERE study = $study AND query = last_query($study)
WINDOW of_layer AS (PARTITION BY layer)
ORDER BY abs(deviations) DESC NULLS LAST, layer, head
