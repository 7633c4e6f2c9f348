-- grain:   one row per (study, source, layer, head)
-- inputs:  files of scores imported with `attention-geometry scores`
-- meaning: scores of heads from other tools, for the model of the study; a score of a KV head is assigned to each of
--          its query heads
CREATE TABLE external_scores (
{{ key_columns("study") }}
    source VARCHAR NOT NULL, -- name under which the scores were imported
    format VARCHAR NOT NULL, -- format of their file: 'duo', 'retrieval' or 'csv'
{{ key_columns("layer", "head") }}
    score DOUBLE NOT NULL -- the score, as in the file; the mean if the file has several trials
)
