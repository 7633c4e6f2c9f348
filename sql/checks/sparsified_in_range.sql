-- grain:   one row per (policy, setting, budget) that is duplicated or impossible
-- inputs:  sparsified_loss
-- meaning: a policy keeps at least one key; KL is not below 0 by more than rounding; intervals have two ends in order;
--          every budget has 'same_n', whose excess is exactly 0
WITH rows_of AS (
    SELECT *
    FROM sparsified_loss
    WHERE study = $study
)
SELECT policy, setting, budget, count(*) AS found, any_value(keys_kept) AS keys_kept, any_value(kl) AS kl
FROM rows_of
GROUP BY policy, setting, budget
HAVING
    count(*) <> 1
    OR NOT bool_and(
        coalesce(
            budget > 0
            AND budget <= 1
            AND keys >= 1
            AND keys_kept >= 1
            AND needs IN ('weights', 'statistics')
            AND kl >= -1e-5
            AND isfinite(delta_loss)
            AND (policy <> 'same_n' OR excess_loss = 0)
            AND (delta_loss_ci_low IS NULL) = (sequences = 1)
            AND coalesce(delta_loss_ci_low <= delta_loss_ci_high, true)
            AND coalesce(kl_ci_low <= kl_ci_high, true)
            AND coalesce(excess_loss_ci_low <= excess_loss_ci_high, true)
            AND budget IN (SELECT budget FROM rows_of WHERE policy = 'same_n'),
            false
        )
    )
