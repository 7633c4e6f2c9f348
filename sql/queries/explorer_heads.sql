-- grain:   one row per (layer, head)
-- inputs:  heads, head_taxonomy, elbows, selection_means, separability, attention_by_position, value_scales, convergence,
--          distance_means, critical_n, sensitivity_bounds, head_ablation, head_labels; $study, $query, $n
-- meaning: the measures by which a map of heads can be coloured, mean over sequences; precision, recall, distance (of
--          the selected keys from the rest, divided by the norm of the output): at N = $n, NULL for a head that attends
--          to $n keys or fewer; auc: at the largest N of the log grid up to $n; sink_weight: NULL if hidden; rho_0: NULL
--          if hidden or of norm 0; effective_share: effective number of keys divided by their number; spectral_norm: of
--          the softmax Jacobian at T = 1; delta_loss: increase of the loss without the head; patterns: what the head is known
--          to look at, NULL if nothing
WITH labelled AS (
    SELECT layer, head, label, nearest, margin, agreement
    FROM head_taxonomy
    WHERE study = $study AND query = $query
),
of_elbows AS (
    SELECT layer, head, elbow_n
    FROM elbows
    WHERE study = $study AND query = $query
),
at_n AS (
    SELECT layer, head, precision, recall
    FROM selection_means
    WHERE study = $study AND query = $query AND n = $n
),
of_ranks AS (
    SELECT layer, head, any_value(value) AS auc
    FROM separability
    WHERE
        study = $study
        AND query = $query
        AND measure = 'auc'
        AND n = (SELECT max(n) FROM separability WHERE study = $study AND query = $query AND n <= $n)
    GROUP BY layer, head
),
rests AS (
    SELECT layer, head, mean_weight AS sink_weight
    FROM attention_by_position
    WHERE study = $study AND query = $query AND position = 0
),
sinks AS (
    SELECT layer, kv_head, avg(rho_0::DOUBLE) AS rho_0
    FROM value_scales
    WHERE study = $study AND query = $query
    GROUP BY layer, kv_head
),
spread AS (
    SELECT layer, head, effective_share
    FROM convergence
    WHERE study = $study AND query = $query
),
distances AS (
    SELECT layer, head, relative_distance AS distance
    FROM distance_means
    WHERE study = $study AND query = $query AND n = $n
),
nearness AS (
    SELECT layer, head, last_nearer_n
    FROM critical_n
    WHERE study = $study AND query = $query
),
sensitive AS (
    SELECT layer, head, spectral_norm
    FROM sensitivity_bounds
    WHERE study = $study AND query = $query AND temperature = 1
),
looked AS (
    SELECT layer, head, string_agg(label, ', ' ORDER BY lift DESC NULLS LAST, label) AS patterns
    FROM head_labels
    WHERE study = $study
    GROUP BY layer, head
),
ablated AS (
    SELECT layer, head, delta_loss
    FROM head_ablation
    WHERE study = $study AND kind = 'zero'
)
SELECT
    layer,
    head,
    kv_head,
    label,
    nearest,
    patterns,
    margin,
    agreement,
    elbow_n,
    precision,
    recall,
    auc,
    sink_weight,
    rho_0,
    effective_share,
    distance,
    last_nearer_n,
    spectral_norm,
    delta_loss
FROM heads
LEFT JOIN labelled USING (layer, head)
LEFT JOIN looked USING (layer, head)
LEFT JOIN of_elbows USING (layer, head)
LEFT JOIN at_n USING (layer, head)
LEFT JOIN of_ranks USING (layer, head)
LEFT JOIN rests USING (layer, head)
LEFT JOIN sinks USING (layer, kv_head)
LEFT JOIN spread USING (layer, head)
LEFT JOIN distances USING (layer, head)
LEFT JOIN nearness USING (layer, head)
LEFT JOIN sensitive USING (layer, head)
LEFT JOIN ablated USING (layer, head)
WHERE study = $study
ORDER BY layer, head
