-- grain:   one row per (layer, head)
-- inputs:  head_ablation, head_measures, head_taxonomy, last_query; $study
-- meaning: increase of the model's loss without a head, and the geometry of that head; kind: what its output is
--          replaced by, 'zero' if the study has that; measures of curves over N are means over ln N; no rows if the
--          study has no effects
WITH chosen AS (SELECT arg_min(kind, (kind <> 'zero', kind)) AS kind FROM head_ablation WHERE study = $study),
measured AS (
    PIVOT (SELECT layer, head, kv_head, measure, value FROM head_measures WHERE study = $study)
    ON measure IN (
        'recall', 'elbow', 'retriever_score', 'mixer_score', 'reset_score', 'rho_0', 'effective_keys',
        'error_renormalised_16', 'error_mean_16', 'weight_left_out_16', 'delta_loss_selected'
    )
    USING any_value(value)
)
SELECT
    layer, head, kv_head, kind, head_ablation.sequences, plain_loss, delta_loss,
    delta_loss_low AS low,
    delta_loss_high AS high,
    kl, label, nearest,
    measured.* EXCLUDE (layer, head, kv_head)
FROM head_ablation
SEMI JOIN chosen USING (kind)
JOIN measured USING (layer, head)
LEFT JOIN (FROM head_taxonomy WHERE query = last_query($study)) AS labelled USING (study, layer, head)
WHERE study = $study AND delta_loss IS NOT NULL
ORDER BY layer, head
