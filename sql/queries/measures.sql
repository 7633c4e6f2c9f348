-- grain:   one row per measure
-- inputs:  measures; $study
-- meaning: numbers of the whole model with their intervals, and those of the twin
SELECT * EXCLUDE (study)
FROM measures
WHERE study = $study
ORDER BY measure
