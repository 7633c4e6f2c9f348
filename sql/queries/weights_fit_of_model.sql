-- grain:   one row, or none if the study has no fits
-- inputs:  assumption_weights_model; $study, $query
-- meaning: Assumption 3 for the whole model: the four phases of the mean weight over heads; see weights_fit_by_head
SELECT * EXCLUDE (study, query)
FROM assumption_weights_model
WHERE study = $study AND query = $query
