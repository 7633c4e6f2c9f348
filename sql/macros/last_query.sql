-- grain:   one number
-- inputs:  assumption_weights_model; name of a study
-- meaning: position of the study's last query, which has the largest context; NULL for a study that has not landed
CREATE MACRO last_query(of_study) AS (
    SELECT max(query) FROM assumption_weights_model WHERE study = of_study
)
