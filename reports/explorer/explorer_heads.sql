-- grain:   one row per (layer, head)
-- inputs:  heads, head_taxonomy, elbows, selection_means, separability, attention_by_position, value_scales, convergence,
--          critical_n, sensitivity_bounds, head_ablation, head_labels; $study, $query, $n
-- meaning: the measures by which a map of heads can be coloured, mean over sequences; precision, recall, distance (of
--          the selected keys from the rest, divided by the norm of the output): at N = $n, NULL for a head that attends
--          to $n keys or fewer; auc: at the largest N of the log grid up to $n; sink_weight: NULL if hidden; rho_0: NULL
--          if hidden or of norm 0; effective_share: effective number of keys divided by their number; spectral_norm: of
--          the softmax Jacobian at T = 1; delta_loss: increase of the loss without the head; patterns: what the head is known
--          to look at, NULL if nothing
WITH of_ranks AS (
    SELECT layer, head, any_value(value) AS auc
    FROM separability
    WHERE study = $study AND query = $query AND measure = 'auc' AND n <= $n
    GROUP BY layer, head, n
    QUALIFY n = max(n) OVER ()
),
sinks AS (
    SELECT layer, kv_head, avg(rho_0::DOUBLE) AS rho_0
    FROM value_scales
    WHERE study = $study AND query = $query
    GROUP BY layer, kv_head
),
looked AS (
    SELECT layer, head, string_agg(label, ', ' ORDER BY lift DESC NULLS LAST, label) AS patterns
    FROM head_labels
    WHERE study = $study
    GROUP BY layer, head
)
SELECT
    layer, head, kv_head, label, nearest, patterns, margin, agreement, labelled.sequences, elbow_n,
    precision, recall, auc,
    mean_weight AS sink_weight,
    rho_0, effective_share,
    relative_distance AS distance,
    last_nearer_n, spectral_norm, delta_loss
FROM heads
LEFT JOIN (FROM head_taxonomy WHERE study = $study AND query = $query) AS labelled USING (layer, head)
LEFT JOIN looked USING (layer, head)
LEFT JOIN (FROM elbows WHERE study = $study AND query = $query) AS bent USING (layer, head)
LEFT JOIN (FROM selection_means WHERE study = $study AND query = $query AND n = $n) AS at_n USING (layer, head)
LEFT JOIN of_ranks USING (layer, head)
LEFT JOIN (FROM attention_by_position WHERE study = $study AND query = $query AND position = 0) AS rest USING (layer, head)
LEFT JOIN sinks USING (layer, kv_head)
LEFT JOIN (FROM convergence WHERE study = $study AND query = $query) AS spread USING (layer, head)
LEFT JOIN (FROM critical_n WHERE study = $study AND query = $query) AS nearness USING (layer, head)
LEFT JOIN (FROM sensitivity_bounds WHERE study = $study AND query = $query AND temperature = 1) AS sensitive USING (layer, head)
LEFT JOIN (FROM head_ablation WHERE study = $study AND kind = 'zero') AS ablated USING (layer, head)
WHERE heads.study = $study
ORDER BY layer, head
