-- grain:   one row per (study, layer, head, kind)
-- inputs:  the study's model, run again over sequences of the study (analysis.effects)
-- meaning: effect on the model's loss of replacing the output z of one head before the output projection: mean
--          differences, paired by sequence; empty unless the study asks for effects
CREATE TABLE head_ablation (
{{ key_columns("study", "layer", "head") }}
    kind VARCHAR NOT NULL, -- replacement of z: 'zero'; 'mean', over positions and the study's other sequences; 'sink', v_0; 'selected', z over the 16 keys of largest weight, renormalised
{{ key_columns("sequences") }}
    plain_loss DOUBLE NOT NULL, -- mean next-token cross entropy without intervention, in nats [0, inf)
{{ interval_columns("delta_loss", "mean increase of the loss, in nats; NULL for 'sink' if a window hides position 0 from a query", "(-inf, inf)") }}
{{ interval_columns("kl", "mean over positions of KL(p_0 ‖ p), in nats, p_0 without intervention; NULL where delta_loss is", "[0, inf)") }}
)
