-- grain:   one row per (study, layer, head, kind)
-- inputs:  the study's model, run again over sequences of the study (analysis.effects)
-- meaning: effect on the model's loss of replacing the output z of one head before the output projection: mean
--          differences, paired by sequence, with percentile intervals of 1000 bootstrap replicates over sequences;
--          empty unless the study asks for effects
CREATE TABLE head_ablation (
    study VARCHAR NOT NULL, -- name of the study
    layer SMALLINT NOT NULL, -- layer, from 0
    head SMALLINT NOT NULL, -- query head, from 0
    kind VARCHAR NOT NULL, -- replacement of z: 'zero'; 'mean', over positions and the study's other sequences; 'sink', v_0
    sequences INTEGER NOT NULL, -- number of sequences averaged
    plain_loss DOUBLE NOT NULL, -- mean next-token cross entropy without intervention, in nats
    delta_loss DOUBLE, -- mean increase of the loss, in nats; NULL for 'sink' if a window hides position 0 from a query
    delta_loss_ci_low DOUBLE, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    delta_loss_ci_high DOUBLE, -- upper end of that interval
    kl DOUBLE, -- mean over positions of KL(p_0 ‖ p), in nats, p_0 without intervention; NULL where delta_loss is
    kl_ci_low DOUBLE, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    kl_ci_high DOUBLE -- upper end of that interval
)
