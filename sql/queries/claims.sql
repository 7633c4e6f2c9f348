-- grain:   one row per claim
-- inputs:  claims; $study
-- meaning: what the paper claims, and all that is known of it in this study and in its twin
SELECT * EXCLUDE (study)
FROM claims
WHERE study = $study
ORDER BY figure, claim
