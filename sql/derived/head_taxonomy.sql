-- inputs:  head_signatures, taxonomy
-- meaning: the kind of every head by the default thresholds
FROM taxonomy()
WHERE study = $study
