-- grain:   one row per (layer, head, kind) that is missing, or has no effect
-- inputs:  head_ablation, heads
-- meaning: if there is any ablation, every head has an effect of each kind; only that of 'sink' may be NULL
WITH expected AS (
    SELECT layer, head, kind
    FROM heads
    CROSS JOIN (SELECT DISTINCT kind FROM head_ablation WHERE study = $study)
    WHERE study = $study
)
SELECT layer, head, kind, delta_loss, kl
FROM expected
LEFT JOIN (FROM head_ablation WHERE study = $study) USING (layer, head, kind)
WHERE (delta_loss IS NULL OR kl IS NULL) AND NOT coalesce(kind = 'sink' AND delta_loss IS NULL AND kl IS NULL AND sequences > 0, false)
