-- grain:   one row per (layer, head, kind) that is missing, or has an effect that it cannot have
-- inputs:  head_ablation, head_ablation_by_sequence, heads
-- meaning: if there is any ablation, every head has one row of each kind, the mean of its sequences (up to rounding);
--          only 'sink' may be missing
WITH expected AS (
    SELECT DISTINCT heads.layer, heads.head, kinds.kind
    FROM heads
    CROSS JOIN (SELECT DISTINCT kind FROM head_ablation WHERE study = $study) AS kinds
    WHERE heads.study = $study
),
sequences AS (
    SELECT layer, head, kind, count(*) AS counted, avg(delta_loss) AS mean_loss
    FROM head_ablation_by_sequence
    WHERE study = $study
    GROUP BY layer, head, kind
),
actual AS (
    SELECT
        layer,
        head,
        kind,
        delta_loss,
        coalesce(
            (delta_loss IS NULL) = (kl IS NULL)
            AND (delta_loss IS NOT NULL OR kind = 'sink')
            AND counted = sequences
            AND coalesce(abs(delta_loss - mean_loss) <= 1e-9 * (1 + abs(mean_loss)), true),
            false
        ) AS possible
    FROM head_ablation
    LEFT JOIN sequences USING (layer, head, kind)
    WHERE study = $study
)
SELECT layer, head, kind, delta_loss
FROM actual
FULL JOIN expected USING (layer, head, kind)
WHERE NOT coalesce(possible, false)
