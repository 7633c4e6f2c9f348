-- grain:   one row per (policy, budget)
-- inputs:  sparsified_loss; $study
-- meaning: what the loss rises by where queries attend to fewer keys, and by how much more than with the same N for all
--          heads; of a control with several draws, means, and the least and greatest ends of their intervals
SELECT
    policy,
    any_value(needs) AS needs,
    budget,
    any_value(keys) AS keys,
    count(*) AS draws,
    any_value(sequences) AS sequences,
    avg(keys_kept) AS keys_kept,
    any_value(plain_loss) AS plain_loss,
    avg(delta_loss) AS delta_loss,
    min(delta_loss_ci_low) AS low,
    max(delta_loss_ci_high) AS high,
    avg(excess_loss) AS excess_loss,
    min(excess_loss_ci_low) AS excess_low,
    max(excess_loss_ci_high) AS excess_high
FROM sparsified_loss
WHERE study = $study
GROUP BY policy, budget
ORDER BY policy, budget
