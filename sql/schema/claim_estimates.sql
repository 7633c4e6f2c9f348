-- grain:   one row per (study, claim)
-- inputs:  stores and tables of a study, at its last query
-- meaning: evidence of a study on each claim of `paper_claims`: an estimate over its sequences and KV groups, with an
--          interval from resampling both; all intervals of a study hold simultaneously with a probability of 95 %. The
--          verdicts that follow are in the view claims
CREATE TABLE claim_estimates (
    study VARCHAR NOT NULL, -- name of the study
    claim VARCHAR NOT NULL, -- short name of the claim
    value DOUBLE, -- the measure of the claim; NULL if it does not exist
    low DOUBLE, -- lower end of its interval; NULL if resampling gives none, as for one sequence
    high DOUBLE, -- upper end of its interval
    rows INTEGER NOT NULL, -- number of rows behind the estimate; `rows_of` of paper_claims says what they are
    clusters INTEGER NOT NULL, -- number of KV groups that these rows belong to
    sequences INTEGER NOT NULL, -- number of sequences
    premise_value DOUBLE, -- the number by which the premise of the claim is judged; NULL if it has none
    reason VARCHAR -- why the study does not test the claim; NULL if it does
)
