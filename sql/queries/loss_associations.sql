-- grain:   one row per measure
-- inputs:  loss_associations; $study
-- meaning: which measures of heads go with the loss without them, within layers; the largest correlation first
SELECT * EXCLUDE (study)
FROM loss_associations
WHERE study = $study AND correlation IS NOT NULL
ORDER BY abs(correlation) DESC
