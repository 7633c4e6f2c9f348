-- grain:   one row per (study, policy, setting, budget, sequence)
-- inputs:  the study's model, run again over sequences of its corpus that the study has not read (analysis.effects)
-- meaning: the losses that sparsified_loss averages, so that policies can be compared sequence by sequence
CREATE TABLE sparsified_loss_by_sequence (
{{ key_columns("study") }}
    policy VARCHAR NOT NULL, -- which keys are kept, as in sparsified_loss
    setting VARCHAR NOT NULL, -- parameters of the policy, and the number of the draw if it is a control
    budget DOUBLE NOT NULL, -- N of 'same_n' as a share of the context
    sequence INTEGER NOT NULL, -- number of the sequence among those that the study has not read, from 0
    plain_loss DOUBLE NOT NULL, -- next-token cross entropy of full attention, in nats
    loss DOUBLE NOT NULL -- the same under the policy
)
