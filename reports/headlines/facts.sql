-- grain:   one row per fact that is told
-- inputs:  facts; $study
-- meaning: what the study found, in sentences, the largest effects first
SELECT * EXCLUDE (study)
FROM facts
WHERE study = $study AND place IS NOT NULL
ORDER BY place
