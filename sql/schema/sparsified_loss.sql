-- grain:   one row per (study, policy, setting, budget)
-- inputs:  the study's model, run again over sequences of its corpus that the study has not read (analysis.effects)
-- meaning: effect on the model's loss of restricting every query to the keys that a policy keeps: mean differences,
--          paired by sequence, with percentile intervals of 1000 bootstrap replicates over sequences; policies of one
--          budget keep the same number of keys on average, up to rounding to whole keys, on the sequences from which
--          budgets were computed; empty unless the study asks for effects
CREATE TABLE sparsified_loss (
    study VARCHAR NOT NULL, -- name of the study
    policy VARCHAR NOT NULL, -- which keys are kept: 'same_n', 'elbow', 'recall', 'mass', 'sink_recent', 'full_heads_…'
    setting VARCHAR NOT NULL, -- parameters of the policy, and the number of the draw if it is a control
    budget DOUBLE NOT NULL, -- N of 'same_n' as a share of the context, as set in the study
    keys INTEGER NOT NULL, -- N of 'same_n'
    needs VARCHAR NOT NULL, -- information that the policy needs: the query's own 'weights' (an oracle), or past 'statistics' of the head
    sequences INTEGER NOT NULL, -- number of sequences averaged
    keys_kept DOUBLE NOT NULL, -- mean number of keys that a query of a head keeps
    plain_loss DOUBLE NOT NULL, -- mean next-token cross entropy of full attention, in nats
    delta_loss DOUBLE NOT NULL, -- mean increase of the loss, in nats
    delta_loss_ci_low DOUBLE, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    delta_loss_ci_high DOUBLE, -- upper end of that interval
    kl DOUBLE NOT NULL, -- mean over positions of KL(p_0 ‖ p), in nats, p_0 of full attention
    kl_ci_low DOUBLE, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    kl_ci_high DOUBLE, -- upper end of that interval
    excess_loss DOUBLE NOT NULL, -- mean difference of loss from 'same_n' at the same budget, in nats; below 0 is better
    excess_loss_ci_low DOUBLE, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    excess_loss_ci_high DOUBLE -- upper end of that interval
)
