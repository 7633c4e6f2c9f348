-- grain:   one row, or none if the study has no fits
-- inputs:  assumption_similarity_model; $study
-- meaning: Assumption 2 for the whole model: both fits of the mean cosine over KV heads, and ρ_0; see similarity_fit_by_head
SELECT * EXCLUDE study
FROM assumption_similarity_model
WHERE study = $study
