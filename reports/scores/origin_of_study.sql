-- grain:   one row
-- inputs:  studies, last_query; $study
-- meaning: the model and text that the tables of a study were made from, its last query, and the layers of its model
SELECT
    model, revision, corpus, context_length, sequences, dtype, layers,
    last_query($study) AS query,
    (provenance -> '$.versions')::VARCHAR AS versions
FROM studies
WHERE study = $study
