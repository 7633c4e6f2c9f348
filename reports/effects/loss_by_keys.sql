-- grain:   one row per (policy, budget)
-- inputs:  sparsified_loss; $study
-- meaning: increase of the loss when queries attend to fewer keys, and its difference from that with the same N for all
--          heads; for a control with several draws, means over draws, and the lowest and highest ends of their
--          intervals
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
    min(delta_loss_low) AS low,
    max(delta_loss_high) AS high,
    avg(excess_loss) AS excess_loss,
    min(excess_loss_low) AS excess_low,
    max(excess_loss_high) AS excess_high
FROM sparsified_loss
WHERE study = $study
GROUP BY policy, budget
ORDER BY policy, budget
