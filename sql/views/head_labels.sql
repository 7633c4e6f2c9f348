-- grain:   one row per (study, layer, head, label)
-- inputs:  head_pattern_means, label_patterns
-- meaning: what heads are known to look at, by the default thresholds of the macro label_patterns; a head may have
--          several labels, or none
CREATE OR REPLACE VIEW head_labels AS
SELECT
{{ key_names("study", "layer", "head") }}
    label, -- 'sink', 'self', 'previous', 'local', 'duplicate', 'induction' or 'diffuse'
    text, -- where it has it: 'corpus', or 'probe' for 'duplicate' and 'induction', which no other study has
{{ key_names("sequences") }}
    share, -- mean share of the pattern, or mean entropy of 'diffuse'
    share_low, -- lower end of its 95 % interval over sequences
    share_high, -- upper end of that interval
    chance, -- the same for uniform weights
    lift, -- mean share over mean chance
    lift_low, -- lower end of its 95 % interval over sequences
    lift_high, -- upper end of that interval
    p_holm, -- p value of a lift of 1, after Holm's correction for all patterns of all heads
FROM label_patterns()
