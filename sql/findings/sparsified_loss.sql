-- grain:   one row, or none if nothing was measured
-- inputs:  sparsified_loss
-- meaning: the policy that costs least at the smallest budget, in a sentence
SELECT
    format(
        'with {:.3g} % of the keys, the policy {} costs least: {:+.3f} nats a token',
        100 * budget,
        arg_min(policy, delta_loss),
        min(delta_loss)
    ) AS finding
FROM sparsified_loss
WHERE budget = (SELECT min(budget) FROM sparsified_loss)
GROUP BY budget
