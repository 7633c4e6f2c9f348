-- grain:   one row per (layer, head, kind) whose ablation is missing, duplicated or impossible
-- inputs:  head_ablation, heads
-- meaning: if there is any ablation, every head has one row of each kind; KL is not below 0 by more than rounding, and
--          intervals have two ends in order; only 'sink' may be missing
WITH wanted AS (
    SELECT DISTINCT heads.layer, heads.head, kinds.kind
    FROM heads
    CROSS JOIN (SELECT DISTINCT kind FROM head_ablation WHERE study = $study) AS kinds
    WHERE heads.study = $study
),
found AS (
    SELECT
        *,
        coalesce(
            (delta_loss IS NULL) = (kl IS NULL)
            AND (delta_loss IS NOT NULL OR kind = 'sink')
            AND coalesce(kl >= -1e-5, true)
            AND (delta_loss_ci_low IS NULL) = (sequences = 1 OR delta_loss IS NULL)
            AND (kl_ci_low IS NULL) = (sequences = 1 OR kl IS NULL)
            AND coalesce(delta_loss_ci_low <= delta_loss_ci_high, true)
            AND coalesce(kl_ci_low <= kl_ci_high, true)
            AND isfinite(plain_loss)
            AND coalesce(isfinite(delta_loss), true),
            false
        ) AS possible
    FROM head_ablation
    WHERE study = $study
)
SELECT
    layer,
    head,
    kind,
    count(found.study) AS found,
    count(wanted.kind) AS expected,
    any_value(delta_loss) AS delta_loss,
    any_value(kl) AS kl
FROM found
FULL JOIN wanted USING (layer, head, kind)
GROUP BY layer, head, kind
HAVING count(found.study) <> 1 OR count(wanted.kind) <> 1 OR NOT bool_and(possible)
