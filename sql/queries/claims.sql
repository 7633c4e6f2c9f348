-- grain:   one row per claim
-- inputs:  claims; $study
-- meaning: what the paper claims, and all that is known of it in this study and in its twin; without the claims about what
--          heads do where the study has no effects
SELECT * EXCLUDE (study)
FROM claims
WHERE study = $study AND reason IS DISTINCT FROM 'the study has no effects'
ORDER BY figure, claim
