-- grain:   one row per (study, query)
-- inputs:  selection_means_model
-- meaning: the elbow of the whole model, from its mean Precision and Recall
CREATE TABLE elbows_model (
    study VARCHAR NOT NULL, -- name of the study
    query INTEGER NOT NULL, -- position of the query in its sequence
    elbow_n INTEGER, -- N of strongest non-trivial separability; NULL unless status is 'ok'
    separability DOUBLE, -- separability at elbow_n
    lowest_n INTEGER, -- N of least separability from 2 on, where the curve that the elbow is sought on ends
    lowest_separability DOUBLE, -- separability at lowest_n
    status VARCHAR NOT NULL -- 'ok'; 'no_decline': lowest at N = 2, so there is no elbow; 'trivial': there is only N = 1
)
