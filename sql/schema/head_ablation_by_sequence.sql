-- grain:   one row per (study, sequence, layer, head, kind)
-- inputs:  the study's model, run again over sequences of the study (analysis.effects)
-- meaning: the effects of head_ablation in one sequence
CREATE TABLE head_ablation_by_sequence (
{{ key_columns("study", "sequence", "layer", "head") }}
    kind VARCHAR NOT NULL, -- replacement of z, as in head_ablation
    plain_loss DOUBLE NOT NULL, -- mean next-token cross entropy of the sequence without intervention, in nats [0, inf)
    delta_loss DOUBLE, -- increase of the loss, in nats; NULL where that of head_ablation is
    kl DOUBLE -- mean over positions of KL(p_0 ‖ p), in nats; NULL likewise [0, inf)
)
