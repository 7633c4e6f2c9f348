-- grain:   one row per (study, layer, head, label)
-- inputs:  head_pattern_means; least share and least entropy
-- meaning: what heads are known to look at: FROM label_patterns(least_share := 0.4); a head may have several labels,
--          or none. 'sink', 'self', 'previous', 'local', 'duplicate', 'induction': the whole interval of the share is at
--          least least_share, and the share is above chance at 5 % after Holm's correction for all patterns of all
--          heads. 'duplicate' and 'induction' are judged in the study's probe alone, in which nearly every token of the
--          second half has one earlier copy: most heads that copy find nothing to copy in a text; all others in its
--          corpus. 'diffuse': the whole interval of the entropy is at least least_entropy, which chance has as well. No
--          labels for fewer than four sequences
CREATE MACRO label_patterns(least_share := 0.4, least_entropy := 0.9) AS TABLE
WITH judged AS (
    FROM head_pattern_means
    WHERE text = CASE WHEN pattern IN ('duplicate', 'induction') THEN 'probe' ELSE 'corpus' END
)
SELECT
    study, layer, head,
    CASE pattern WHEN 'entropy' THEN 'diffuse' ELSE pattern END AS label,
    text, sequences, share, share_low, share_high, chance, lift, lift_low, lift_high, p_holm
FROM judged
WHERE
    p_holm IS NOT NULL
    AND CASE
        WHEN pattern = 'entropy' THEN share_low >= least_entropy
        WHEN pattern IN ('sink', 'self', 'previous', 'local', 'duplicate', 'induction')
            THEN share_low >= least_share AND lift > 1 AND p_holm <= 0.05
        ELSE false
    END
