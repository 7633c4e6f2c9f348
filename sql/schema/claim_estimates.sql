-- grain:   one row per (study, claim)
-- inputs:  stores and tables of a study, at its last query
-- meaning: what a study shows of each claim of `paper_claims`: an estimate over its sequences and KV groups, with an
--          interval from resampling both; all intervals of a study hold at once with a probability of 95 %. See the view
--          claims for what follows
CREATE TABLE claim_estimates (
    study VARCHAR NOT NULL, -- name of the study
    claim VARCHAR NOT NULL, -- short name of the claim
    value DOUBLE, -- the measure of the claim; NULL where there is no such number
    low DOUBLE, -- lower end of its interval; NULL where resampling says nothing, as for one sequence
    high DOUBLE, -- upper end of its interval
    rows INTEGER NOT NULL, -- how many the estimate rests on, of what `rows_of` of paper_claims says
    clusters INTEGER NOT NULL, -- number of KV groups behind these
    sequences INTEGER NOT NULL, -- number of sequences
    premise_value DOUBLE, -- the number by which the premise of the claim is judged; NULL if it has none
    reason VARCHAR -- why the study does not test the claim; NULL if it does
)
