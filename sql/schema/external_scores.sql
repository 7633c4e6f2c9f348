-- grain:   one row per (study, source, layer, head)
-- inputs:  files of scores that were given with `attention-geometry scores`
-- meaning: scores of heads by other people's tools, for the model of the study; a score of a KV head is that of each of
--          its query heads
CREATE TABLE external_scores (
    study VARCHAR NOT NULL, -- name of the study
    source VARCHAR NOT NULL, -- name that the scores were given
    format VARCHAR NOT NULL, -- format of their file: 'duo', 'retrieval' or 'csv'
    layer SMALLINT NOT NULL, -- layer, from 0
    head SMALLINT NOT NULL, -- query head, from 0
    score DOUBLE NOT NULL -- the score, as in the file; of several trials, their mean
)
