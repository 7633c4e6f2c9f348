-- grain:   one row per claim
-- inputs:  claims, claim_parts; $study
-- meaning: the paper's claims with all results, in parts a list of the measures compared; without the claims about
--          effects of heads if the study has no effects
SELECT
    claims.* EXCLUDE (study),
    list({
        'measure': measure, 'label': label, 'direction': direction, 'threshold': threshold, 'value': value,
        'low': value_low, 'high': value_high, 'verdict': claim_parts.verdict
    } ORDER BY part) AS parts
FROM claims
JOIN claim_parts USING (study, claim)
WHERE study = $study AND reason IS DISTINCT FROM 'the study has no effects'
GROUP BY ALL
ORDER BY source, claim
