-- grain:   one row per (quantity, layer)
-- inputs:  layer_profiles; $study
-- meaning: means over the heads of each layer, with intervals over sequences
SELECT * EXCLUDE (study)
FROM layer_profiles
WHERE study = $study
ORDER BY quantity, layer
