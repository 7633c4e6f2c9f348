FROM head_pattern_means AS prose
LEFT JOIN head_pattern_means AS probe
    ON (probe.study, probe.layer, probe.head, probe.pattern, probe.text)
    = (prose.study, prose.layer, prose.head, prose.pattern, 'probe')
SELECT
    prose.layer, prose.head, prose.share, prose.share_low, prose.share_high, prose.lift, prose.lift_low,
    prose.lift_high,
    probe.share AS probe_share,
    probe.share_low AS probe_low,
    probe.share_high AS probe_high
WHERE
    prose.study = $study AND prose.text = 'corpus' AND prose.pattern = 'induction'
    AND prose.lift > 1 AND prose.p_holm <= 0.05
ORDER BY prose.share DESC
LIMIT 5
