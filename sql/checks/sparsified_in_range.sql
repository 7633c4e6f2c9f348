-- grain:   one row per (policy, setting, budget) with an effect that no policy can have
-- inputs:  sparsified_loss
-- meaning: every budget has 'same_n', whose excess is exactly 0
SELECT policy, setting, budget, excess_loss
FROM sparsified_loss
WHERE
    study = $study
    AND (
        needs NOT IN ('weights', 'statistics')
        OR (policy = 'same_n' AND excess_loss <> 0)
        OR budget NOT IN (SELECT budget FROM sparsified_loss WHERE study = $study AND policy = 'same_n')
    )
