-- grain:   one row per (claim, measure) that contradicts the measures, or claim whose verdict contradicts its p value
-- inputs:  claims, claim_parts, measures
-- meaning: parts of claims have the values of their measures; a claim has a p value and a verdict exactly if it is
--          testable, and is decided exactly if its corrected p value is at most 0.05
SELECT claim, measure, NULL AS verdict
FROM claim_parts
LEFT JOIN (SELECT measure, value AS expected FROM measures WHERE study = $study) USING (measure)
WHERE study = $study AND value IS DISTINCT FROM expected
UNION ALL
SELECT claim, NULL, verdict
FROM claims
WHERE
    study = $study
    AND (
        (reason IS NULL) <> (p IS NOT NULL)
        OR (p IS NULL) <> (verdict = 'not testable')
        OR (p_holm <= 0.05) <> (verdict IN ('supported', 'not supported'))
        OR p_holm < p
    )
