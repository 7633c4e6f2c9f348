-- grain:   one row per (study, policy, setting, budget)
-- inputs:  the study's model, run again over sequences of its corpus that the study has not read (analysis.effects)
-- meaning: effect on the model's loss of restricting every query to the keys that a policy keeps: mean differences,
--          paired by sequence; policies of one budget keep the same number of keys on average, up to rounding to whole
--          keys, on the sequences from which budgets were computed; empty unless the study asks for effects
CREATE TABLE sparsified_loss (
{{ key_columns("study") }}
    policy VARCHAR NOT NULL, -- which keys are kept: 'same_n', 'off_mean', 'elbow', 'n_90', 'error', 'recall', 'mass', 'sink_recent', 'full_heads_…', followed by '_window' if sink and recent keys always are, and by rest if it is not 'renormalised'
    setting VARCHAR NOT NULL, -- parameters of the policy, and the number of the draw if it is a control
    budget DOUBLE NOT NULL, -- N of 'same_n' as a share of the context, as set in the study (0, 1]
    keys INTEGER NOT NULL, -- N of 'same_n' [1, inf)
    needs VARCHAR NOT NULL, -- information that the policy needs: the query's own 'weights' (an oracle), or past 'statistics' of the head
    rest VARCHAR NOT NULL, -- what the weight of the other keys goes to: 'renormalised', to those kept; 'dropped', nothing; 'mean', the mean value state of all keys that the query sees; 'mean_of_rest', that of the other keys
{{ key_columns("sequences") }}
    keys_kept DOUBLE NOT NULL, -- mean number of keys that a query of a head keeps [0, inf)
    plain_loss DOUBLE NOT NULL, -- mean next-token cross entropy of full attention, in nats [0, inf)
{{ interval_columns("delta_loss", "mean increase of the loss, in nats", "(-inf, inf)") }}
{{ interval_columns("kl", "mean over positions of KL(p_0 ‖ p), in nats, p_0 of full attention", "[0, inf)") }}
{{ interval_columns("excess_loss", "mean difference of loss from 'same_n' at the same budget, in nats; below 0 is better", "(-inf, inf)") }}
)
