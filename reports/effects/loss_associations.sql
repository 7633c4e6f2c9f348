-- grain:   one row per (kind, measure)
-- inputs:  loss_associations; $study
-- meaning: which measures of heads go with the loss without them, within layers; zero first if the study has that, and
--          the largest correlation
SELECT * EXCLUDE (study)
FROM loss_associations
WHERE study = $study AND correlation IS NOT NULL
ORDER BY kind <> 'zero', kind, abs(correlation) DESC
