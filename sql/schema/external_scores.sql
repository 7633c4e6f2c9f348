-- grain:   one row per (study, source, layer, head)
-- inputs:  files of scores imported with `attention-geometry scores`
-- meaning: scores of heads from other tools, for the model of the study; a score of a KV head is assigned to each of
--          its query heads
CREATE TABLE external_scores (
    study VARCHAR NOT NULL, -- name of the study
    source VARCHAR NOT NULL, -- name under which the scores were imported
    format VARCHAR NOT NULL, -- format of their file: 'duo', 'retrieval' or 'csv'
    layer SMALLINT NOT NULL, -- layer, from 0
    head SMALLINT NOT NULL, -- query head, from 0
    score DOUBLE NOT NULL -- the score, as in the file; the mean if the file has several trials
)
