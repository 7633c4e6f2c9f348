-- grain:   one row per claim
-- inputs:  claims; $study
-- meaning: the paper's claims, with all results for this study and its twin; without the claims about effects of heads
--          if the study has no effects
SELECT * EXCLUDE (study)
FROM claims
WHERE study = $study AND reason IS DISTINCT FROM 'the study has no effects'
ORDER BY figure, claim
