-- grain:   one row, or none if the study has no elbows
-- inputs:  elbows_model; $study, $query
-- meaning: the elbow of the whole model, from its mean Precision and Recall; see elbow_by_head
SELECT elbow_n, harmonic_mean, lowest_n, lowest_harmonic_mean, status
FROM elbows_model
WHERE study = $study AND query = $query
