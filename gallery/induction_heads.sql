FROM head_pattern_means
SELECT layer, head, share, share_low, share_high, lift, lift_low, lift_high
WHERE study = $study AND pattern = 'induction' AND lift > 1 AND p_holm <= 0.05
ORDER BY share DESC
LIMIT 5
