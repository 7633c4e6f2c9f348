-- grain:   one row per claim
-- inputs:  claims; $study
-- meaning: what the paper claims, what is measured here, and whether this model supports it (NULL: cannot be judged)
SELECT * EXCLUDE (study)
FROM claims
WHERE study = $study
ORDER BY figure, claim
