-- grain:   one row per (study, budget, policy)
-- inputs:  sparsified_loss
-- meaning: At equal cost, which policies of sparse attention increase the loss least, among those that see weights and
--          among the others?
FROM sparsified_loss
SELECT
    study, budget, needs, policy,
    avg(keys_kept) AS keys_kept,
    avg(delta_loss) AS delta_loss,
    avg(excess_loss) AS more_than_the_same_n,
    rank() OVER (PARTITION BY study, budget, needs ORDER BY avg(delta_loss)) AS place
GROUP BY study, budget, needs, policy
ORDER BY study, budget, needs DESC, place, policy
